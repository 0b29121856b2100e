//! What JSON Schema says in ECMAScript's regular expressions, and its formats of dates, as the compiler's patterns say it. Where the two
//! differ the compiler's meaning would let through what the schema forbids.

use serde_json::{json, Map, Value as Json};

/// A year in which February has 29 days.
const LEAP_YEAR: &str = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";

fn date() -> String {
    format!(
        "(?:[0-9]{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{LEAP_YEAR}-02-29)"
    )
}

/// Without leap seconds, which stand only where the minute is the last of a day in UTC.
const TIME: &str = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// The formats whose patterns in the compiler are too wide.
fn format_pattern(format: &str) -> Option<String> {
    match format {
        "date" => Some(format!("^{}$", date())),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{}[tT]{TIME}$", date())),
        _ => None,
    }
}

/// '.' leaves out all ends of lines; white space has U+FEFF; a class has no classes and no operators in it. None: it cannot be said.
fn pattern(ecma: &str) -> Option<String> {
    let mut out = String::with_capacity(ecma.len());
    let mut in_class = false;
    let mut chars = ecma.chars();
    while let Some(c) = chars.next() {
        match (c, in_class) {
            ('\\', _) => match (chars.next()?, in_class) {
                ('s', true) => out.push_str(r"\s\x{FEFF}"),
                ('s', false) => out.push_str(r"[\s\x{FEFF}]"),
                ('S', false) => out.push_str(r"[^\s\x{FEFF}]"),
                ('S', true) => return None,
                (escaped, _) => out.extend(['\\', escaped]),
            },
            ('.', false) => out.push_str(r"[^\n\r\x{2028}\x{2029}]"),
            ('[', true) => out.push_str(r"\["),
            ('&' | '~', true) => out.extend(['\\', c]),
            ('[', false) => {
                in_class = true;
                out.push(c);
            }
            (']', true) => {
                in_class = false;
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    Some(out)
}

/// The schema with all its patterns and formats translated. Err: the place of one that cannot be, and its keyword.
pub fn translate(schema: &mut Json, at: &str) -> Result<(), (String, &'static str)> {
    let Some(object) = schema.as_object_mut() else { return Ok(()) };
    if let Some(Json::String(ecma)) = object.get_mut("pattern") {
        *ecma = pattern(ecma).ok_or_else(|| (at.to_owned(), "pattern"))?;
    }
    if let Some(Json::Object(by_pattern)) = object.get_mut("patternProperties") {
        let translated: Option<Map<String, Json>> = std::mem::take(by_pattern).into_iter().map(|(ecma, child)| Some((pattern(&ecma)?, child))).collect();
        *by_pattern = translated.ok_or_else(|| (at.to_owned(), "patternProperties"))?;
    }
    for (keyword, value) in object.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(named)) => {
                for (name, child) in named.iter_mut() {
                    translate(child, &format!("{at}/{keyword}/{name}"))?;
                }
            }
            ("anyOf" | "allOf" | "oneOf" | "prefixItems" | "items", Json::Array(list)) => {
                for (i, child) in list.iter_mut().enumerate() {
                    translate(child, &format!("{at}/{keyword}/{i}"))?;
                }
            }
            ("items" | "additionalItems" | "additionalProperties", child) => translate(child, &format!("{at}/{keyword}"))?,
            _ => {}
        }
    }
    // Last, so that what is put in is not translated.
    let Some(narrow) = object.get("format").and_then(Json::as_str).and_then(format_pattern) else { return Ok(()) };
    object.shift_remove("format");
    match object.entry("allOf").or_insert_with(|| json!([])) {
        Json::Array(all) => all.push(json!({ "pattern": narrow })),
        other => *other = json!([{ "pattern": narrow }]),
    }
    Ok(())
}
