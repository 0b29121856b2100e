//! Constraints over a vocabulary of bytes: what is accepted, what is refused and how it is named. Masks against brute force, larger
//! tokens and the C interface: src/grammar.

use deepinfer_rust::{GrammarFailure, Matcher, Vocabulary};

const END: u32 = 256;

fn vocabulary() -> Vocabulary {
    let bytes: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).chain([b"<end>".to_vec()]).collect();
    let tokens: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    Vocabulary::new(&tokens, |id| id == END as usize, &[END]).unwrap()
}

fn start(spec: &str) -> Result<Matcher, GrammarFailure> {
    vocabulary().compile(spec)?.matcher()
}

fn accepts(spec: &str, text: &str) -> bool {
    let mut matcher = start(spec).unwrap_or_else(|f| panic!("{spec}: {}", f.message));
    for byte in text.bytes() {
        if !matcher.mask().unwrap().is_allowed(byte as u32) {
            return false;
        }
        matcher.accept(byte as u32).unwrap();
    }
    matcher.accepting().unwrap()
}

fn refusal(spec: &str) -> String {
    start(spec).err().map(|f| f.message).unwrap_or_default()
}

fn schema(text: &str) -> String {
    format!(r#"{{"kind":"json_schema","schema":{text}}}"#)
}

#[test]
fn kinds() {
    assert!(accepts(r#"{"kind":"choice","choices":["a","ab",""]}"#, "ab"));
    assert!(accepts(r#"{"kind":"choice","choices":["a","ab",""]}"#, ""));
    assert!(!accepts(r#"{"kind":"choice","choices":["a","ab"]}"#, "b"));
    assert!(accepts(r#"{"kind":"regex","pattern":"^a{2}\\$$"}"#, "aa$"));
    assert!(accepts(&schema("{}"), r#"[1, {"a": "\u001f\n"}]"#));
    assert!(!accepts(r#"{"kind":"json_schema","schema":{},"compact":true}"#, "[1, 2]"));
    let lark = r#"{"kind":"lark","grammar":"start: \"x\" @s \"y\"","schemas":[{"name":"s","schema":{"type":"boolean"}}]}"#;
    assert!(accepts(lark, "xtruey"));
}

#[test]
fn control_tokens_are_named_or_not_there() {
    let words: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).chain([b"<end>".to_vec(), b"<a>".to_vec(), b"b".to_vec()]).collect();
    let tokens: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let vocabulary = Vocabulary::new(&tokens, |id| id >= END as usize, &[END]).unwrap();
    let allowed = |grammar: &str| -> Vec<u32> {
        let mut matcher = vocabulary.compile(&format!(r#"{{"kind":"lark","grammar":"start: {grammar}"}}"#)).unwrap().matcher().unwrap();
        let mask = matcher.mask().unwrap();
        (END + 1..END + 3).filter(|&id| mask.is_allowed(id)).collect()
    };
    for any in ["/(?s:.)+/", "X\\nX: ~/c/", "<[*]>", "<[^97]>"] {
        assert_eq!(allowed(any), [0u32; 0], "{any}");
    }
    assert_eq!(allowed("X | <[258]>\\nX: ~/c/"), [258]);
    assert_eq!(allowed("<[1,257-258]>"), [257, 258]);
    assert_eq!(allowed("<a>"), [257]);
}

#[test]
fn refusals_name_keyword_and_place() {
    assert_eq!(refusal(&schema(r#"{"properties":{"a/b":{"not":{}}}}"#)), r#"the schema: keyword "not" at "/properties/a~1b": it is not supported"#);
    assert!(refusal(&schema(r#"{"items":{"format":"iri"}}"#)).starts_with(r#"the schema: keyword "format" at "/items": "#));
    assert!(refusal(&schema(r##"{"$defs":{"n":{"minimum":"1"}},"items":{"$ref":"#/$defs/n"}}"##)).contains(r#"keyword "minimum" at "/$defs/n""#));
    assert!(refusal(&schema(r#"{"oneOf":[{"type":"string"},{"minLength":2}]}"#)).contains(r#"keyword "oneOf" at its root"#));
    assert!(refusal(&schema(r#"{"$ref":"https://example.com"}"#)).contains(r#"keyword "$ref" at its root"#));
    assert!(refusal(&schema(r#"{"type":"string","pattern":"(?=a)"}"#)).contains(r#"keyword "pattern" at its root"#));
    let lark = r#"{"kind":"lark","grammar":"start: @s","schemas":[{"name":"s","schema":{"if":{}},"label":"the tool f"}]}"#;
    assert_eq!(refusal(lark), r#"the schema of the tool f: keyword "if" at its root: it is not supported"#);
    for broken in [r#"{"kind":"regex","pattern":"("}"#, r#"{"kind":"lark","grammar":"begin: \"a\""}"#, r#"{"kind":"spell"}"#, r#"{"kind":"choice","choices":[]}"#, "", "[]"] {
        assert_ne!(refusal(broken), "", "{broken}");
    }
}

#[test]
fn limits_hold() {
    let items = |depth| schema(&("{\"items\":".repeat(depth) + "true" + &"}".repeat(depth)));
    assert_eq!(refusal(&items(65)), "");
    let deeper = format!(r#"the schema: keyword "items" at "{}": schemas are nested more than 64 deep"#, "/items".repeat(64));
    for depth in [66, 90, 200, 900] {
        assert_eq!(refusal(&items(depth)), deeper);
    }
    let named = |depth| schema(&("{\"properties\":{\"a\":".repeat(depth) + "{}" + &"}}".repeat(depth)));
    assert!(accepts(&named(64), &("{\"a\": ".repeat(64) + "0" + &"}".repeat(64))));
    assert!(refusal(&named(120)).starts_with(r#"the schema: keyword "properties" at "/properties/a"#));
    assert!(refusal(&items(100_000)).contains("deep"));
    let value = |depth| schema(&format!(r#"{{"const":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)));
    assert!(accepts(&value(250), &("[".repeat(250) + &"]".repeat(250))));
    assert_ne!(refusal(&format!(r#"{{"kind":"regex","pattern":"{}"}}"#, "(".repeat(20000))), "");
    assert_ne!(refusal(&format!(r#"{{"kind":"lark","grammar":"start: {}"}}"#, "(".repeat(20000))), "");
    let rules: String = (0..4000).map(|i| format!("r{i}: r{}\\n", i + 1)).collect();
    assert_eq!(refusal(&format!(r#"{{"kind":"lark","grammar":"start: r0\n{rules}r4000: \"a\""}}"#)), "");
    let properties: Vec<String> = (0..1000).map(|i| format!("\"p{i}\":{{\"type\":\"string\"}}")).collect();
    assert_eq!(refusal(&schema(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(",")))), "");
}
