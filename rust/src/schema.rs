//! JSON schemas before they are compiled: what the compiler would let pass without honouring it is refused here, with keyword and JSON
//! pointer; what it refuses itself is looked for, so that its message has them too.

use crate::ecma;
use crate::grammar::{first_line, invalid, Failure};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use serde_json::{json, Map, Value as Json};
use std::collections::HashMap;

/// White space in JSON that is generated: never unbounded, or a model may write blanks until its limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Spaced,  // at most one space after ',' and ':'
    Compact, // none
}

const MAX_SCHEMA_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
const MAX_PROPERTIES: usize = 1000; // of one object
const MAX_PATTERNS: usize = 100; // likewise: each is held against all others, which costs more than their square
const MAX_PAIRS: usize = 4 * MAX_PATTERNS * MAX_PATTERNS; // of all objects
const MAX_TOGETHER: usize = 8; // patterns and formats that one value is held against: what the compiler does with them doubles with each
const MAX_STEPS: usize = 2_000_000; // of putting together what one value is held against
const MAX_TRIALS: usize = 200; // compilations to find what was refused
const MAX_TRIAL_BYTES: usize = 64 << 10; // of a schema for which that is tried

/// Keywords that say something about a value and that nothing here can enforce.
const UNSUPPORTED: [&str; 21] = [
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
    "extends",
    "disallow",
];

/// A schema's place: the pointer from the root.
fn pointer(parent: &str, token: &str) -> String {
    format!("{parent}/{}", token.replace('~', "~0").replace('/', "~1"))
}

fn refused(label: &str, at: &str, keyword: &str, why: &str) -> Failure {
    let place = if at.is_empty() { "its root".to_owned() } else { format!("\"{at}\"") };
    let schema = if label.is_empty() { "the schema".to_owned() } else { format!("the schema of {label}") };
    invalid(format!("{schema}: keyword \"{keyword}\" at {place}: {why}"))
}

/// The schemas in a schema: the keyword that each is under, and its pointer.
fn children<'a>(schema: &'a Map<String, Json>, at: &str) -> Vec<(&'a str, String, &'a Json)> {
    let mut found = vec![];
    for (keyword, value) in schema {
        let place = pointer(at, keyword);
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(named)) => {
                found.extend(named.iter().map(|(name, child)| (keyword.as_str(), pointer(&place, name), child)))
            }
            ("anyOf" | "allOf" | "oneOf" | "prefixItems" | "items", Json::Array(list)) => {
                found.extend(list.iter().enumerate().map(|(i, child)| (keyword.as_str(), format!("{place}/{i}"), child)))
            }
            ("items" | "additionalItems" | "additionalProperties", child) => found.push((keyword.as_str(), place, child)),
            _ => {}
        }
    }
    found
}

struct Check<'a> {
    label: &'a str,
    nested_id: Option<String>, // where a subschema has an identifier of its own
    pairs: usize,                  // of patterns that are held against each other
    combined: Vec<(String, &'static str, &'a Json)>, // schemas that others belong to, by which keyword, and where they are
}

impl<'a> Check<'a> {
    fn schema(&mut self, value: &'a Json, at: &str, depth: usize) -> Result<(), Failure> {
        let schema = match value {
            Json::Bool(_) => return Ok(()),
            Json::Object(schema) => schema,
            _ => return Err(invalid(format!("{}: \"{at}\" is not a schema", self.name()))),
        };
        if let Some(keyword) = ["allOf", "$ref", "anyOf", "oneOf"].into_iter().find(|keyword| schema.contains_key(*keyword)) {
            self.combined.push((at.to_owned(), keyword, value));
        }
        for (keyword, value) in schema {
            self.keyword(keyword, value, at)?;
        }
        for (keyword, place, child) in children(schema, at) {
            if depth == MAX_DEPTH && child.is_object() {
                return Err(refused(self.label, at, keyword, &format!("schemas are nested more than {MAX_DEPTH} deep")));
            }
            self.schema(child, &place, depth + 1)?;
        }
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, value: &Json, at: &str) -> Result<(), Failure> {
        let refuse = |why: &str| Err(refused(self.label, at, keyword, why));
        match keyword {
            _ if UNSUPPORTED.contains(&keyword) => refuse("it is not supported"),
            "x-guidance" => refuse("it is the server's own"),
            "properties" if value.as_object().is_some_and(|o| o.len() > MAX_PROPERTIES) => {
                refuse(&format!("more than {MAX_PROPERTIES} properties"))
            }
            "patternProperties" => {
                let patterns = value.as_object().map_or(0, Map::len);
                self.pairs += patterns * patterns;
                match patterns > MAX_PATTERNS || self.pairs > MAX_PAIRS {
                    true => refuse(&format!("more than {MAX_PATTERNS} patterns, or too many of them in all")),
                    false => Ok(()),
                }
            }
            "format" if value == "unknown" => refuse("unknown format: unknown"),
            "$ref" => match value.as_str() {
                Some("#") => Ok(()),
                Some(target) if target.starts_with("#/") && !target.contains(['~', '%']) => Ok(()),
                _ => refuse("only references within the schema, \"#/…\" without escapes, are supported"),
            },
            "$id" | "id" if !at.is_empty() && value.is_string() => {
                self.nested_id.get_or_insert_with(|| at.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn name(&self) -> String {
        if self.label.is_empty() {
            "the schema".to_owned()
        } else {
            format!("the schema of {}", self.label)
        }
    }
}

/// What a schema refers to; the form of references has been checked.
fn target_of<'a>(root: &'a Json, schema: &Json) -> Option<&'a Json> {
    schema.get("$ref").and_then(Json::as_str).and_then(|target| root.pointer(&target[1..]))
}

/// Whether a schema is, in the end, itself: by a reference, or as a part of what it is all of. No value is said by such a one. known: schemas that
/// were looked through; true while one is.
fn is_itself(root: &Json, schema: &Json, known: &mut HashMap<*const Json, bool>) -> bool {
    if let Some(&open) = known.get(&std::ptr::from_ref(schema)) {
        return open;
    }
    known.insert(schema, true);
    let parts = |keyword: &str| schema.get(keyword).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let single = |keyword: &str| if parts(keyword).len() == 1 { parts(keyword) } else { &[] };
    let found = target_of(root, schema).into_iter().chain(parts("allOf")).chain(single("anyOf")).chain(single("oneOf")).any(|part| is_itself(root, part, known));
    known.insert(schema, found);
    found
}

/// Schemas that hold of one value at once.
type Parts<'a> = Vec<&'a Map<String, Json>>;

/// Finds what one value is held against where schemas are combined, as the compiler does: by allOf, references and the alternatives of anyOf and
/// oneOf, and by properties and items that several of those describe.
struct Combinations<'a> {
    root: &'a Json,
    left: usize,               // steps; None below: no more are left
    open: Vec<&'a Json>, // targets of references that are being looked through
}

impl<'a> Combinations<'a> {
    fn both(&mut self, left: &[Parts<'a>], right: &[Parts<'a>]) -> Option<Vec<Parts<'a>>> {
        let mut all = vec![];
        for a in left {
            for b in right {
                self.left = self.left.checked_sub(1 + a.len() + b.len())?;
                all.push(a.iter().chain(b).copied().collect());
            }
        }
        Some(all)
    }

    /// The alternatives of a value that all of the schemas hold of.
    fn of_all(&mut self, schemas: &[&'a Json]) -> Option<Vec<Parts<'a>>> {
        let mut all = vec![vec![]];
        for schema in schemas {
            let alternatives = self.of(schema)?;
            all = self.both(&all, &alternatives)?;
        }
        Some(all)
    }

    fn of(&mut self, schema: &'a Json) -> Option<Vec<Parts<'a>>> {
        self.left = self.left.checked_sub(1)?;
        let Some(map) = schema.as_object() else { return Some(vec![vec![]]) };
        let list = |keyword: &str| map.get(keyword).and_then(Json::as_array).map(|parts| parts.iter().collect::<Vec<_>>()).unwrap_or_default();
        let parts = self.of_all(&list("allOf"))?;
        let mut all = self.both(&[vec![map]], &parts)?;
        if let Some(target) = target_of(self.root, schema).filter(|target| !self.open.iter().any(|open| std::ptr::eq(*open, *target))) {
            self.open.push(target);
            let parts = self.of(target)?;
            self.open.pop();
            all = self.both(&all, &parts)?;
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut options = vec![];
            for option in list(keyword) {
                options.extend(self.of(option)?);
            }
            if !options.is_empty() {
                all = self.both(&all, &options)?;
            }
        }
        Some(all)
    }

    /// Whether no value is held against more than MAX_TOGETHER patterns and formats.
    fn are_few(&mut self, schemas: &[&'a Json], depth: usize) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        for parts in self.of_all(schemas)? {
            let patterns = parts.iter().map(|part| usize::from(part.contains_key("pattern")) + usize::from(part.contains_key("format"))).sum::<usize>();
            if patterns > MAX_TOGETHER {
                return Some(false);
            }
            let named = parts.iter().filter_map(|part| part.get("properties")?.as_object()).map(Map::len).sum::<usize>();
            self.left = self.left.checked_sub(named * parts.len())?;
            for described in described_by_several(&parts).into_values() {
                if !self.are_few(&described, depth + 1)? {
                    return Some(false);
                }
            }
        }
        Some(true)
    }
}

/// The schemas of each property and item that two schemas or more say something of.
fn described_by_several<'a>(parts: &Parts<'a>) -> HashMap<String, Vec<&'a Json>> {
    let mut found: HashMap<String, Vec<&'a Json>> = HashMap::new();
    if parts.len() < 2 {
        return found;
    }
    let named = |part: &&'a Map<String, Json>, keyword: &str| part.get(keyword).and_then(Json::as_object);
    let names = parts.iter().filter_map(|part| named(part, "properties")).flat_map(Map::keys);
    for name in names {
        if found.contains_key(name) {
            continue;
        }
        let mut all = vec![];
        for part in parts {
            let own = named(part, "properties").and_then(|properties| properties.get(name));
            all.extend(own.or_else(|| part.get("additionalProperties")));
            all.extend(named(part, "patternProperties").into_iter().flat_map(Map::values));
        }
        found.insert(name.clone(), all);
    }
    for keyword in ["items", "additionalItems", "additionalProperties"] {
        found.insert(format!("/{keyword}"), parts.iter().filter_map(|part| part.get(keyword)).filter(|items| items.is_object()).collect());
    }
    let lists = parts.iter().flat_map(|part| ["prefixItems", "items"].into_iter().filter_map(|keyword| part.get(keyword)?.as_array()));
    for (i, item) in lists.flat_map(|list| list.iter().enumerate()) {
        found.entry(format!("/{i}")).or_default().push(item);
    }
    found.retain(|_, described| described.len() > 1);
    found
}

/// A schema in which nothing would pass unhonoured.
pub struct Checked {
    schema: Json,
    label: String, // what messages call it
    size: usize,
}

impl Checked {
    pub fn new(schema: Json, label: String) -> Result<Checked, Failure> {
        let mut check = Check { label: &label, nested_id: None, pairs: 0, combined: vec![] };
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            return Err(invalid(format!("{}: {size} bytes; at most {MAX_SCHEMA_BYTES}", check.name())));
        }
        check.schema(&schema, "", 0)?;
        let mut refs = check.combined.iter().filter(|(_, _, found)| found.get("$ref").is_some()).peekable();
        if let (Some(at), true) = (&check.nested_id, refs.peek().is_some()) {
            return Err(refused(&label, at, "$id", "a base of its own for references is not supported"));
        }
        let mut known = HashMap::new();
        if let Some((at, ..)) = refs.find(|(_, _, found)| is_itself(&schema, found, &mut known)) {
            return Err(refused(&label, at, "$ref", "it leads back to itself"));
        }
        let mut combinations = Combinations { root: &schema, left: MAX_STEPS, open: vec![] };
        for (at, keyword, found) in &check.combined {
            match combinations.are_few(&[found], 0) {
                Some(true) => {}
                Some(false) => return Err(refused(&label, at, keyword, &format!("more than {MAX_TOGETHER} patterns and formats hold of one value"))),
                None => return Err(refused(&label, at, keyword, "it combines too many schemas")),
            }
        }
        let name = check.name();
        let mut schema = match schema {
            Json::Bool(true) => json!({}),
            Json::Bool(false) => return Err(invalid(format!("{name}: false allows nothing"))),
            other => other,
        };
        ecma::translate(&mut schema, "").map_err(|(at, keyword)| refused(&label, &at, keyword, "\\S in a class of characters is not supported"))?;
        Ok(Checked { schema, label, size })
    }

    /// As it is compiled.
    pub fn styled(&self, style: Style) -> Json {
        let mut schema = self.schema.clone();
        let separators = match style {
            Style::Spaced => (", ?", ": ?"),
            Style::Compact => (",", ":"),
        };
        if let Some(object) = schema.as_object_mut() {
            object.insert("x-guidance".into(), json!({"whitespace_flexible": false, "item_separator": separators.0, "key_separator": separators.1}));
        }
        schema
    }

    /// Why the compiler does not take it; None: it does.
    pub fn refusal(&self) -> Option<Failure> {
        compile_error(&self.schema).map(|message| locate(&self.schema, &self.label, &message, self.size))
    }
}

/// Without a vocabulary: quick.
fn compile_error(schema: &Json) -> Option<String> {
    let grammar = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema.clone()));
    grammar.to_internal(None, ParserLimits::default()).err().map(|e| first_line(&e.to_string()))
}

struct Trials<'a> {
    definitions: Vec<(&'a str, &'a Json)>, // of the root, for references
    left: usize,
}

impl Trials<'_> {
    fn error(&mut self, schema: &Json) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        let mut alone = schema.clone();
        if let Some(object) = alone.as_object_mut() {
            for &(keyword, value) in &self.definitions {
                object.entry(keyword).or_insert_with(|| value.clone());
            }
        }
        compile_error(&alone)
    }

    /// The deepest schema that does not compile alone.
    fn deepest(&mut self, schema: &Json, at: &str) -> Option<(String, String, Json)> {
        let message = self.error(schema)?;
        for (_, place, child) in schema.as_object().map(|object| children(object, at)).unwrap_or_default() {
            // false is a schema of its own right: it forbids a property.
            if child.is_object() {
                if let Some(found) = self.deepest(child, &place) {
                    return Some(found);
                }
            }
        }
        Some((at.to_owned(), message, schema.clone()))
    }
}

fn locate(schema: &Json, label: &str, message: &str, size: usize) -> Failure {
    let definitions = ["$defs", "definitions"].into_iter().filter_map(|k| Some((k, schema.get(k)?))).collect();
    let mut trials = Trials { definitions, left: if size > MAX_TRIAL_BYTES { 0 } else { MAX_TRIALS } };
    let (at, message, failing) = trials.deepest(schema, "").unwrap_or_else(|| (String::new(), message.to_owned(), schema.clone()));
    let keywords = failing.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    for keyword in &keywords {
        let mut without = failing.clone();
        if let Some(object) = without.as_object_mut() {
            object.shift_remove(keyword);
        }
        let spare = trials.left > 0;
        if spare && trials.error(&without).is_none() {
            return refused(label, &at, keyword, &message);
        }
    }
    refused(label, &at, keywords.first().map_or("", String::as_str), &message)
}
