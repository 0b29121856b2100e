//! The environment that templates run in: Jinja2's filters, tests and functions as the Hugging Face libraries give them, and Python's
//! string methods. Those that look into a text see it without marks; those that hand text on keep them.

use crate::limits::{charge, check, check_depth, check_stored};
use crate::marks::{may_be_marked, Marks};
use crate::python;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};
use std::sync::Arc;

fn fail<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, text.into()))
}

/// A value without marks, for looking at it.
fn plain(marks: &Marks, value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if text.len() > 1024 {
            charge(text.len())?;
        }
        return Ok(if may_be_marked(text) { Value::from(marks.unmark(text)) } else { value.clone() });
    }
    match value.kind() {
        ValueKind::Seq => {
            check_depth(value)?;
            // Only a list that a template built can hold marked strings directly.
            let marked = |v: &Value| v.as_str().is_some_and(may_be_marked);
            let items: Vec<Value> = value.try_iter()?.collect();
            charge(32 * items.len())?;
            if items.iter().any(marked) {
                return Ok(items.iter().map(|v| v.as_str().map_or(v.clone(), |t| Value::from(marks.unmark(t)))).collect());
            }
        }
        ValueKind::Map => check_depth(value)?,
        _ => {}
    }
    Ok(value.clone())
}

fn concat(first: &Value, rest: &[Value]) -> Result<Value, Error> {
    let mut out = String::new();
    for value in std::iter::once(first).chain(rest) {
        charge(value.as_str().map_or(0, str::len))?;
        python::str(value, &mut out)?;
    }
    charge(out.len())?;
    Ok(Value::from(out))
}

fn unsupported<T>(what: &str, left: &Value, right: &Value) -> Result<T, Error> {
    fail(format!("cannot {what} {} and {}", left.kind(), right.kind()))
}

// a + b + …, from the left.
fn add(first: &Value, rest: &[Value]) -> Result<Value, Error> {
    if first.as_str().is_some() {
        let mut out = String::new();
        for value in std::iter::once(first).chain(rest) {
            let Some(text) = value.as_str() else { return unsupported("add", first, value) };
            charge(text.len())?;
            out.push_str(text);
        }
        charge(out.len())?;
        return Ok(Value::from(out));
    }
    let mut sum = first.clone();
    for value in rest {
        sum = add_two(&sum, value)?;
    }
    Ok(sum)
}

fn add_two(left: &Value, right: &Value) -> Result<Value, Error> {
    let is_list = |v: &Value| matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        return check(left.try_iter()?.chain(right.try_iter()?).collect());
    }
    arithmetic("add", left, right, i128::checked_add, |a, b| a + b)
}

fn multiply(first: &Value, rest: &[Value]) -> Result<Value, Error> {
    rest.iter().try_fold(first.clone(), |product, value| multiply_two(&product, value))
}

fn multiply_two(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some((text, n)) = left.as_str().map(|t| (t, right)).or_else(|| right.as_str().map(|t| (t, left))) {
        let Some(n) = n.as_i64() else { return fail("a text can only be multiplied with an integer") };
        let n = n.max(0) as usize;
        charge(text.len().saturating_mul(n))?;
        return Ok(Value::from(text.repeat(n)));
    }
    arithmetic("multiply", left, right, i128::checked_mul, |a, b| a * b)
}

fn arithmetic(what: &str, left: &Value, right: &Value, exact: fn(i128, i128) -> Option<i128>, float: fn(f64, f64) -> f64) -> Result<Value, Error> {
    // True and false are 1 and 0, as in Python.
    let number = |v: &Value| if v.kind() == ValueKind::Bool { Value::from(i32::from(v.is_true())) } else { v.clone() };
    let (a, b) = (number(left), number(right));
    if !a.is_number() || !b.is_number() {
        return unsupported(what, left, right);
    }
    if a.is_integer() && b.is_integer() {
        let result = exact(i128::try_from(a)?, i128::try_from(b)?);
        return result.map(Value::from).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "a number is too large"));
    }
    Ok(Value::from(float(f64::try_from(a)?, f64::try_from(b)?)))
}

fn replace(marks: &Marks, text: &str, old: &str, new: &str, count: Option<i64>) -> Result<Value, Error> {
    let bare = marks.unmark(old);
    let text = if bare != old { text.replace(old, &bare) } else { text.to_owned() };
    let mut matches = if bare.is_empty() { text.chars().count() + 1 } else { text.matches(&bare).count() };
    if let Some(count) = count.filter(|&c| c >= 0) {
        matches = matches.min(count as usize);
    }
    charge(text.len() + matches.saturating_mul(new.len()))?;
    Ok(Value::from(text.replacen(&bare, new, matches)))
}

fn split(marks: &Marks, text: &str, separator: Option<&str>, limit: Option<i64>, from_right: bool) -> Result<Value, Error> {
    charge(2 * text.len())?;
    let limit = limit.filter(|&n| n >= 0).map_or(usize::MAX, |n| n as usize + 1);
    let Some(separator) = separator else {
        let words: Vec<&str> = text.split_whitespace().collect();
        charge(words.len() * 32)?;
        if words.len() <= limit {
            return Ok(words.into_iter().map(Value::from).collect());
        }
        if from_right {
            return fail("rsplit needs a separator when it has a limit");
        }
        let mut rest = text.trim_start();
        let mut out = Vec::new();
        while out.len() + 1 < limit {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            out.push(Value::from(&rest[..end]));
            rest = rest[end..].trim_start();
        }
        out.push(Value::from(rest));
        return Ok(Value::from(out));
    };
    let bare = marks.unmark(separator);
    if bare.is_empty() {
        return fail("split: the separator is empty");
    }
    let text = if bare != separator { text.replace(separator, &bare) } else { text.to_owned() };
    charge(32 * text.matches(&bare).count())?;
    let mut parts: Vec<Value> = match from_right {
        true => text.rsplitn(limit, &bare).map(Value::from).collect(),
        false => text.splitn(limit, &bare).map(Value::from).collect(),
    };
    if from_right {
        parts.reverse();
    }
    Ok(Value::from(parts))
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
    Both,
}

fn strip(marks: &Marks, text: &str, chars: Option<&str>, side: Side) -> Value {
    let set = chars.map(|c| c.to_owned() + &marks.unmark(c));
    let cut = |c: char| set.as_ref().map_or_else(|| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c), |s| s.contains(c));
    Value::from(match side {
        Side::Left => text.trim_start_matches(cut),
        Side::Right => text.trim_end_matches(cut),
        Side::Both => text.trim_matches(cut),
    })
}

fn join(values: &Value, separator: &str) -> Result<Value, Error> {
    let mut out = String::new();
    for (i, item) in values.try_iter()?.enumerate() {
        charge(separator.len() + item.as_str().map_or(0, str::len) + 8)?;
        if i > 0 {
            out.push_str(separator);
        }
        python::str(&item, &mut out)?;
    }
    Ok(Value::from(out))
}

fn indent(text: &str, width: usize, first: bool, blank: bool) -> Result<Value, Error> {
    charge(text.len() + text.split('\n').count().saturating_mul(width))?;
    let pad = " ".repeat(width);
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn tojson(marks: &Marks, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let mut style = python::JsonStyle { indent: None, item_separator: ", ".into(), key_separator: ": ".into(), sort_keys: false, ensure_ascii: false };
    match options.get::<Option<Value>>("indent")? {
        Some(v) if v.is_none() => {}
        Some(v) => {
            style.indent = Some(match v.as_str() {
                Some(text) if text.len() <= 16 => text.to_owned(),
                _ => " ".repeat(v.as_i64().filter(|n| (0..=16).contains(n)).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "tojson: indent is not 0 to 16"))? as usize),
            });
            style.item_separator = ",".into();
        }
        None => {}
    }
    if let Some(pair) = options.get::<Option<Value>>("separators")?.filter(|v| !v.is_none()) {
        let pair: Vec<String> = pair.try_iter()?.map(|v| marks.unmark(v.as_str().unwrap_or_default())).collect();
        let [item, key] = <[String; 2]>::try_from(pair).map_err(|_| Error::new(ErrorKind::InvalidOperation, "tojson: separators is not a pair"))?;
        if item.len() + key.len() > 32 {
            return fail("tojson: separators are too long");
        }
        (style.item_separator, style.key_separator) = (item, key);
    }
    style.sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    style.ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut out = String::new();
    python::json(value, &style, &mut out)?;
    Ok(Value::from(out))
}

// Widths that would make a text of any size.
fn check_format(format: &str) -> Result<(), Error> {
    let digits = format.as_bytes().split(|b| !b.is_ascii_digit()).map(<[u8]>::len).max().unwrap_or(0);
    if format.len() > 4096 || digits > 3 || format.contains("%*") || format.contains(".*") {
        return fail("format: the format is too long or asks for too wide a field");
    }
    Ok(())
}

fn char_index(text: &str, byte: Option<usize>) -> i64 {
    byte.map_or(-1, |b| text[..b].chars().count() as i64)
}

fn affix(text: &str, wanted: &Value, found: fn(&str, &str) -> bool) -> Result<Value, Error> {
    if let Some(wanted) = wanted.as_str() {
        return Ok(Value::from(found(text, wanted)));
    }
    for item in wanted.try_iter()? {
        if item.as_str().is_some_and(|w| found(text, w)) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn number(args: &[Value], i: usize) -> Option<i64> {
    args.get(i).and_then(Value::as_i64)
}

/// Python's methods of str that templates use; None: not one of these.
fn string_method(marks: &Marks, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    charge(text.len() / 16)?;
    let arg = |i: usize| args.get(i).and_then(Value::as_str);
    let need = |i: usize| arg(i).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("{method}() needs a text as argument")));
    let side = match method {
        "lstrip" => Side::Left,
        "rstrip" => Side::Right,
        _ => Side::Both,
    };
    Ok(Some(match method {
        "startswith" => affix(&marks.unmark(text), &plain(marks, args.first().unwrap_or(&Value::UNDEFINED))?, |t, w| t.starts_with(w))?,
        "endswith" => affix(&marks.unmark(text), &plain(marks, args.first().unwrap_or(&Value::UNDEFINED))?, |t, w| t.ends_with(w))?,
        "find" | "index" | "rfind" | "count" => {
            let (text, wanted) = (marks.unmark(text), marks.unmark(need(0)?));
            match method {
                "count" if wanted.is_empty() => Value::from(text.chars().count() + 1),
                "count" => Value::from(text.matches(&wanted).count()),
                "rfind" => Value::from(char_index(&text, text.rfind(&wanted))),
                _ => match char_index(&text, text.find(&wanted)) {
                    -1 if method == "index" => return fail("index(): not found"),
                    at => Value::from(at),
                },
            }
        }
        "split" | "rsplit" => {
            let separator = arg(0);
            split(marks, text, separator, number(args, 1), method == "rsplit")?
        }
        "partition" | "rpartition" => {
            let wanted = marks.unmark(need(0)?);
            let text = text.replace(need(0)?, &wanted);
            let at = if method == "partition" { text.find(&wanted) } else { text.rfind(&wanted) };
            let parts = match at {
                Some(at) => [&text[..at], &text[at..at + wanted.len()], &text[at + wanted.len()..]],
                None if method == "partition" => [&text[..], "", ""],
                None => ["", "", &text[..]],
            };
            parts.into_iter().map(Value::from).collect()
        }
        "replace" => replace(marks, text, need(0)?, need(1)?, number(args, 2))?,
        "strip" | "lstrip" | "rstrip" => strip(marks, text, arg(0), side),
        "removeprefix" => {
            let bare = marks.unmark(need(0)?);
            Value::from(text.strip_prefix(need(0)?).or_else(|| text.strip_prefix(&bare)).unwrap_or(text))
        }
        "removesuffix" => {
            let bare = marks.unmark(need(0)?);
            Value::from(text.strip_suffix(need(0)?).or_else(|| text.strip_suffix(&bare)).unwrap_or(text))
        }
        "format" => {
            check_format(text)?;
            return Ok(None);
        }
        "join" => join(args.first().unwrap_or(&Value::UNDEFINED), text)?,
        _ => return Ok(None),
    }))
}

fn unknown_method(marks: &Marks, state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(marks, text, method, args)? {
            return Ok(result);
        }
    }
    if value.kind() == ValueKind::Map && method == "get" {
        let key = plain(marks, args.first().unwrap_or(&Value::UNDEFINED))?;
        let found = value.get_item(&key)?;
        return Ok(if found.is_undefined() { args.get(1).cloned().unwrap_or(Value::from(())) } else { found });
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

fn add_text_filters(env: &mut Environment<'static>, marks: &Arc<Marks>) {
    let m = marks.clone();
    env.add_filter("__plain", move |v: Value| plain(&m, &v));
    env.add_filter("__check", check);
    env.add_filter("__stored", check_stored);
    env.add_filter("__add", |first: &Value, rest: Rest<Value>| add(first, &rest));
    env.add_filter("__concat", |first: &Value, rest: Rest<Value>| concat(first, &rest));
    env.add_filter("__multiply", |first: &Value, rest: Rest<Value>| multiply(first, &rest));
    let m = marks.clone();
    env.add_filter("replace", move |v: &Value, old: &str, new: &str, count: Option<i64>| {
        let mut text = String::new();
        python::str(v, &mut text)?;
        replace(&m, &text, old, new, count)
    });
    let m = marks.clone();
    env.add_filter("split", move |v: &str, separator: Option<&str>, limit: Option<i64>| split(&m, v, separator, limit, false));
    let m = marks.clone();
    env.add_filter("trim", move |v: &Value, chars: Option<&str>| {
        let mut text = String::new();
        python::str(v, &mut text)?;
        Ok::<_, Error>(strip(&m, &text, chars, Side::Both))
    });
    for name in ["length", "count"] {
        let m = marks.clone();
        env.add_filter(name, move |v: &Value| match v.as_str() {
            Some(text) => Ok(m.unmark(text).chars().count()),
            None if v.is_undefined() => Ok(0),
            None => v.len().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("a value of kind {} has no length", v.kind()))),
        });
    }
    env.add_filter("join", |v: &Value, separator: Option<&str>, options: Kwargs| {
        if let Some(name) = options.get::<Option<&str>>("attribute")? {
            let items = v.try_iter()?.map(|item| item.get_attr(name)).collect::<Result<Vec<_>, _>>()?;
            return join(&Value::from(items), separator.unwrap_or(""));
        }
        options.assert_all_used()?;
        join(v, separator.unwrap_or(""))
    });
    env.add_filter("string", |v: &Value| {
        let mut out = String::new();
        python::str(v, &mut out)?;
        Ok::<_, Error>(out)
    });
    env.add_filter("indent", |v: &str, width: Option<usize>, first: Option<bool>, blank: Option<bool>, options: Kwargs| {
        let width = options.get::<Option<usize>>("width")?.or(width).unwrap_or(4);
        let first = options.get::<Option<bool>>("first")?.or(first).unwrap_or(false);
        let blank = options.get::<Option<bool>>("blank")?.or(blank).unwrap_or(false);
        options.assert_all_used()?;
        indent(v, width, first, blank)
    });
    let m = marks.clone();
    env.add_filter("tojson", move |v: &Value, options: Kwargs| tojson(&m, v, options));
    // Nothing is escaped, so there is nothing to keep from it.
    env.add_filter("safe", |v: Value| v);
    for name in ["e", "escape", "pprint", "format"] {
        env.remove_filter(name);
    }
    env.add_filter("format", |v: &str, args: Rest<Value>| {
        check_format(v)?;
        minijinja::format_filter(minijinja::FormatStyle::Printf, v, &args)
    });
}

fn add_tests(env: &mut Environment<'static>, marks: &Arc<Marks>) {
    for name in ["eq", "equalto", "=="] {
        let m = marks.clone();
        env.add_test(name, move |a: &Value, b: &Value| Ok::<_, Error>(plain(&m, a)? == plain(&m, b)?));
    }
    for name in ["ne", "!="] {
        let m = marks.clone();
        env.add_test(name, move |a: &Value, b: &Value| Ok::<_, Error>(plain(&m, a)? != plain(&m, b)?));
    }
    let m = marks.clone();
    env.add_test("in", move |a: &Value, b: &Value| {
        let (a, b) = (plain(&m, a)?, plain(&m, b)?);
        if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
            return Ok(b.contains(a));
        }
        Ok::<_, Error>(b.try_iter()?.any(|item| item == a))
    });
}

fn add_kind_tests(env: &mut Environment<'static>) {
    // None has no elements to iterate over, which minijinja sees otherwise.
    env.add_test("iterable", |v: &Value| matches!(v.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined));
    env.add_test("sequence", |v: &Value| matches!(v.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable));
}

pub fn environment(marks: &Arc<Marks>) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(crate::limits::FUEL));
    env.set_recursion_limit(crate::limits::RECURSION);
    env.set_debug(false);
    let m = marks.clone();
    env.set_unknown_method_callback(move |state, value, method, args| unknown_method(&m, state, value, method, args));
    env.set_formatter(|out, _, value| {
        if let Some(text) = value.as_str() {
            charge(text.len())?;
            return out.write_str(text).map_err(Error::from);
        }
        let mut text = String::new();
        python::str(value, &mut text)?;
        charge(text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    add_text_filters(&mut env, marks);
    add_tests(&mut env, marks);
    add_kind_tests(&mut env);
    let m = marks.clone();
    env.add_function("raise_exception", move |text: &Value| -> Result<Value, Error> {
        let mut message = String::new();
        python::str(text, &mut message)?;
        Err(Error::new(ErrorKind::InvalidOperation, m.unmark(&message)).with_source(crate::template::Raised))
    });
    let m = marks.clone();
    env.add_function("strftime_now", move |state: &State, format: &str| {
        let now = state.lookup("__now").and_then(|v| v.as_i64()).unwrap_or(0);
        python::strftime(now, &m.unmark(format))
    });
    env
}
