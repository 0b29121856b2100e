//! How Python prints values, since chat templates are written for Jinja2: {{ true }} is "True", {{ {'a': none} }} is "{'a': None}",
//! and tojson is json.dumps(ensure_ascii=False) with ", " and ": ".

use crate::limits::{charge, MAX_DEPTH};
use crate::marks::{character_mark, cut, escape, token_mark, Found};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

fn too_deep() -> Error {
    Error::new(ErrorKind::OutOfFuel, "a value to print is nested too deeply")
}

/// repr(float): the shortest digits that give the number back, exponents below 1e-4 and from 1e16.
pub fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let magnitude = x.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{x:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(e) => ('-', e),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{x:?}")
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// str(value)
pub fn str(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None => repr(value, MAX_DEPTH, out)?,
    }
    Ok(())
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    charge(16)?;
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out)?,
        ValueKind::Seq | ValueKind::Iterable => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&item, depth, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&key, depth, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth, out)?;
            }
            out.push('}');
        }
        _ => return Err(Error::new(ErrorKind::InvalidOperation, format!("cannot print a value of kind {}", value.kind()))),
    }
    Ok(())
}

fn quote(text: &str, out: &mut String) -> Result<(), Error> {
    charge(text.len())?;
    let has = |wanted: char| {
        let mut found = false;
        cut(text, |piece| match piece {
            Found::Text(plain) => found |= plain.contains(wanted),
            Found::Own(c) => found |= c == wanted,
            _ => {}
        });
        found
    };
    let quote = if has('\'') && !has('"') { '"' } else { '\'' };
    out.push(quote);
    map_characters(text, out, |c| match c {
        '\\' => Some("\\\\".into()),
        '\n' => Some("\\n".into()),
        '\r' => Some("\\r".into()),
        '\t' => Some("\\t".into()),
        c if c == quote => Some(format!("\\{c}")),
        c if (c as u32) < 0x20 || c as u32 == 0x7f => Some(format!("\\x{:02x}", c as u32)),
        _ => None,
    });
    out.push(quote);
    Ok(())
}

// Escapes what must be escaped, whoever wrote it; all else keeps its marks. A control token whose spelling would need escaping stays
// one, and the comparison with the reference refuses it.
fn map_characters(text: &str, out: &mut String, escaped: impl Fn(char) -> Option<String>) {
    cut(text, |found| match found {
        Found::Token(token) => out.push(token_mark(token)),
        Found::Own(c) => match escaped(c) {
            Some(text) => out.push_str(&text),
            None => out.push(character_mark(c)),
        },
        Found::Restored(c) => match escaped(c) {
            Some(text) => out.push_str(&text),
            None => out.push_str(&escape(c.encode_utf8(&mut [0; 4]))),
        },
        Found::Text(plain) => {
            for c in plain.chars() {
                match escaped(c) {
                    Some(text) => out.push_str(&text),
                    None => out.push(c),
                }
            }
        }
    });
}

pub struct JsonStyle {
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
    pub ensure_ascii: bool,
}

/// json.dumps(value)
pub fn json(value: &Value, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    json_at(value, style, 0, out)
}

fn json_at(value: &Value, style: &JsonStyle, level: usize, out: &mut String) -> Result<(), Error> {
    charge(16)?;
    if level > 128 {
        return Err(too_deep());
    }
    let separate = |out: &mut String, first: bool, level: usize| {
        if !first {
            out.push_str(&style.item_separator);
        }
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..level).for_each(|_| out.push_str(indent));
        }
    };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(x) if !value.is_integer() && x.is_nan() => out.push_str("NaN"),
            Ok(x) if !value.is_integer() && x.is_infinite() => out.push_str(if x > 0.0 { "Infinity" } else { "-Infinity" }),
            _ => out.push_str(&number(value)),
        },
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), style, out)?,
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                separate(out, empty, level + 1);
                empty = false;
                json_at(&item, style, level + 1, out)?;
            }
            if !empty {
                separate(out, true, level);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            out.push('{');
            for (i, key) in keys.iter().enumerate() {
                separate(out, i == 0, level + 1);
                let mut text = String::new();
                match key.kind() {
                    ValueKind::String => text.push_str(key.as_str().unwrap_or_default()),
                    ValueKind::Bool | ValueKind::None | ValueKind::Number => json_at(key, style, level + 1, &mut text)?,
                    kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a key of kind {kind}"))),
                }
                json_string(&text, style, out)?;
                out.push_str(&style.key_separator);
                json_at(&value.get_item(key)?, style, level + 1, out)?;
            }
            if !keys.is_empty() {
                separate(out, true, level);
            }
            out.push('}');
        }
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a value of kind {kind}"))),
    }
    Ok(())
}

fn json_string(text: &str, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    charge(text.len())?;
    out.push('"');
    map_characters(text, out, |c| match c {
        '"' => Some("\\\"".into()),
        '\\' => Some("\\\\".into()),
        '\n' => Some("\\n".into()),
        '\r' => Some("\\r".into()),
        '\t' => Some("\\t".into()),
        '\u{8}' => Some("\\b".into()),
        '\u{c}' => Some("\\f".into()),
        c if (c as u32) < 0x20 => Some(format!("\\u{:04x}", c as u32)),
        c if style.ensure_ascii && !c.is_ascii() => Some(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()),
        _ => None,
    });
    out.push('"');
    Ok(())
}

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// datetime.fromtimestamp(unix_s, UTC).strftime(format)
pub fn strftime(unix_s: i64, format: &str) -> Result<String, Error> {
    let (days, second) = (unix_s.div_euclid(86400), unix_s.rem_euclid(86400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Civil date from days (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let year_day = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1] + day + i64::from(leap && month > 2);
    let weekday = (days + 4).rem_euclid(7) as usize;

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut field = chars.next();
        let bare = field == Some('-');
        if bare {
            field = chars.next();
        }
        let (value, width) = match field {
            Some('Y') => (year, 4),
            Some('y') => (year.rem_euclid(100), 2),
            Some('m') => (month, 2),
            Some('d') => (day, 2),
            Some('H') => (hour, 2),
            Some('I') => ((hour + 11) % 12 + 1, 2),
            Some('M') => (minute, 2),
            Some('S') => (second, 2),
            Some('j') => (year_day, 3),
            Some('e') => {
                out.push_str(&format!("{day:2}"));
                continue;
            }
            Some(text) => {
                out.push_str(&match text {
                    'B' => MONTHS[month as usize - 1].to_owned(),
                    'b' | 'h' => MONTHS[month as usize - 1][..3].to_owned(),
                    'A' => DAYS[weekday].to_owned(),
                    'a' => DAYS[weekday][..3].to_owned(),
                    'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
                    'F' => format!("{year:04}-{month:02}-{day:02}"),
                    'T' => format!("{hour:02}:{minute:02}:{second:02}"),
                    'Z' => "UTC".to_owned(),
                    'z' => "+0000".to_owned(),
                    '%' => "%".to_owned(),
                    other => return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now: unknown field %{other}"))),
                });
                continue;
            }
            None => return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the format ends in %")),
        };
        out.push_str(&if bare { value.to_string() } else { format!("{value:0width$}") });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_in_python() {
        for (x, text) in [(1.0, "1.0"), (0.1, "0.1"), (1e16, "1e+16"), (1.5e-7, "1.5e-07"), (123456789.25, "123456789.25"), (1e-4, "0.0001"), (-0.0, "-0.0")] {
            assert_eq!(float(x), text);
        }
    }

    #[test]
    fn dates() {
        assert_eq!(strftime(0, "%d %b %Y %A %j").unwrap(), "01 Jan 1970 Thursday 001");
        assert_eq!(strftime(1_709_210_096, "%Y-%m-%d %H:%M:%S %-d %B %a %I%p %j").unwrap(), "2024-02-29 12:34:56 29 February Thu 12PM 060");
        assert!(strftime(0, "%Q").is_err());
    }
}
