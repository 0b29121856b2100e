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
    refs: Vec<(String, &'a Json)>, // schemas that refer to others, and where they are
}

impl<'a> Check<'a> {
    fn schema(&mut self, value: &'a Json, at: &str, depth: usize) -> Result<(), Failure> {
        let schema = match value {
            Json::Bool(_) => return Ok(()),
            Json::Object(schema) => schema,
            _ => return Err(invalid(format!("{}: \"{at}\" is not a schema", self.name()))),
        };
        if schema.contains_key("$ref") {
            self.refs.push((at.to_owned(), value));
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

/// Whether a schema is, in the end, itself: by a reference, or as a part of what it is all of. No value is said by such a one. known: schemas that
/// were looked through; true while one is.
fn is_itself(root: &Json, schema: &Json, known: &mut HashMap<*const Json, bool>) -> bool {
    if let Some(&open) = known.get(&std::ptr::from_ref(schema)) {
        return open;
    }
    known.insert(schema, true);
    let parts = |keyword: &str| schema.get(keyword).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let single = |keyword: &str| if parts(keyword).len() == 1 { parts(keyword) } else { &[] };
    let target = schema.get("$ref").and_then(Json::as_str).and_then(|target| root.pointer(&target[1..]));
    let found = target.into_iter().chain(parts("allOf")).chain(single("anyOf")).chain(single("oneOf")).any(|part| is_itself(root, part, known));
    known.insert(schema, found);
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
        let mut check = Check { label: &label, nested_id: None, pairs: 0, refs: vec![] };
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            return Err(invalid(format!("{}: {size} bytes; at most {MAX_SCHEMA_BYTES}", check.name())));
        }
        check.schema(&schema, "", 0)?;
        if let (Some(at), false) = (&check.nested_id, check.refs.is_empty()) {
            return Err(refused(&label, at, "$id", "a base of its own for references is not supported"));
        }
        let mut known = HashMap::new();
        if let Some((at, _)) = check.refs.iter().find(|(_, found)| is_itself(&schema, found, &mut known)) {
            return Err(refused(&label, at, "$ref", "it leads back to itself"));
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
