//! What a rendering may cost, so that neither a hostile template nor a hostile conversation hangs or fills memory. minijinja counts
//! instructions (fuel); this counts bytes: every string or list that an instruction makes is charged to one account, and no value
//! may be larger or nested deeper than a bound.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

pub const FUEL: u64 = 4_000_000;
pub const MAX_SOURCE: usize = 256 << 10;
pub const MAX_DEPTH: usize = 32; // of lists and maps that a template builds, and of values that are printed
pub const RECURSION: usize = 64; // macros and recursive loops
const MAX_NODES: usize = 256; // looked at to find a value's depth
const MAX_UNKNOWN: u64 = 10_000; // values too wide for that
const BASE_BYTES: u64 = 64 << 20;
const BASE_VALUE_BYTES: u64 = 16 << 20;

thread_local! {
    static BYTES_LEFT: Cell<u64> = const { Cell::new(0) };
    static VALUE_BYTES: Cell<u64> = const { Cell::new(0) };
    static UNKNOWN_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Opens the account of a rendering on this thread. A template may build prompts in steps (namespace text + message), so the account
/// grows with the input.
pub fn start(input_bytes: usize) {
    BYTES_LEFT.set(BASE_BYTES + 256 * input_bytes as u64);
    VALUE_BYTES.set(BASE_VALUE_BYTES + 16 * input_bytes as u64);
    UNKNOWN_LEFT.set(MAX_UNKNOWN);
}

fn exceeded(what: &'static str) -> Error {
    Error::new(ErrorKind::OutOfFuel, what)
}

pub fn charge(bytes: usize) -> Result<(), Error> {
    if bytes as u64 > VALUE_BYTES.get() {
        return Err(exceeded("a text of the template grew past its limit"));
    }
    match BYTES_LEFT.get().checked_sub(bytes as u64) {
        Some(left) => BYTES_LEFT.set(left),
        None => return Err(exceeded("the template made more text than its limit allows")),
    }
    Ok(())
}

/// A value that the template just made: charged, bounded in depth, lazy sequences made whole (a chain of lazy ones would be as deep
/// as it is long).
pub fn check(value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        charge(text.len())?;
        return Ok(value);
    }
    match value.kind() {
        ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                charge(32)?;
                items.push(item);
            }
            let list = Value::from(items);
            check_children(&list)?;
            check_depth(&list)?;
            Ok(list)
        }
        ValueKind::Seq | ValueKind::Map => {
            charge(32 * value.len().unwrap_or(1))?;
            check_children(&value)?;
            check_depth(&value)?;
            Ok(value)
        }
        _ => Ok(value),
    }
}

// Values are counted references, so one that holds itself would never be freed. Only namespaces can be changed, and macros know the
// names around them: neither may be inside another value.
fn may_hold_itself(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        let name = object.type_name();
        ["Namespace", "Macro", "Closure", "Loop", "Module"].iter().any(|part| name.contains(part))
    })
}

/// A value that is put into a namespace.
pub fn check_stored(value: Value) -> Result<Value, Error> {
    match may_hold_itself(&value) {
        true => Err(Error::new(ErrorKind::InvalidOperation, "a namespace or macro cannot be stored in another value")),
        false => Ok(value),
    }
}

fn check_children(value: &Value) -> Result<(), Error> {
    for key in value.try_iter()? {
        check_stored(if value.kind() == ValueKind::Map { value.get_item(&key)? } else { key })?;
    }
    Ok(())
}

pub fn check_depth(value: &Value) -> Result<(), Error> {
    let mut nodes = MAX_NODES;
    if !walk(value, MAX_DEPTH, &mut nodes)? {
        let left = UNKNOWN_LEFT.get().checked_sub(1).ok_or_else(|| exceeded("the template built too many lists"))?;
        UNKNOWN_LEFT.set(left);
    }
    Ok(())
}

// True if all of the value was seen.
fn walk(value: &Value, depth: usize, nodes: &mut usize) -> Result<bool, Error> {
    if *nodes == 0 {
        return Ok(false);
    }
    *nodes -= 1;
    match value.kind() {
        ValueKind::Seq | ValueKind::Map if depth == 0 => Err(exceeded("a value of the template is nested too deeply")),
        ValueKind::Seq => {
            for item in value.try_iter()? {
                if !walk(&item, depth - 1, nodes)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                if !walk(&value.get_item(&key)?, depth - 1, nodes)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}
