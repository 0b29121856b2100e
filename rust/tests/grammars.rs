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
    assert!(accepts(r#"{"kind":"choice","choices":["",""]}"#, "") && !accepts(r#"{"kind":"choice","choices":[""]}"#, "a"));
    let many = (0..4096).map(|i| format!(r#""name {i}""#)).collect::<Vec<_>>().join(",");
    let (choices, values) = (format!(r#"{{"kind":"choice","choices":[{many}]}}"#), schema(&format!(r#"{{"enum":[{many}]}}"#)));
    for name in ["name 7", "name 70", "name 4095"] {
        assert!(accepts(&choices, name) && accepts(&values, &format!("\"{name}\"")), "{name}");
    }
    let optional = (0..1000).map(|i| format!(r#""p{i}":{{"type":"integer"}}"#)).collect::<Vec<_>>().join(",");
    let optional = schema(&format!(r#"{{"type":"object","properties":{{{optional}}},"additionalProperties":false}}"#));
    assert!(accepts(&optional, "{}") && accepts(&optional, r#"{"p0":1,"p500":2,"p999":3}"#) && !accepts(&optional, r#"{"p500":2,"p0":1}"#));
    let objects = (0..3000).map(|i| format!(r#"{{"a":{i}}}"#)).collect::<Vec<_>>().join(",");
    assert!(accepts(&schema(&format!(r#"{{"enum":[{objects}]}}"#)), r#"{"a":2999}"#));
    assert!(!accepts(&choices, "name 4096") && !accepts(&choices, "name ") && !accepts(&values, "\"name 4096\""));
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

/// In a large vocabulary masks near a string's bound are put together from lengths (bounded.rs): they are what a small vocabulary, whose trie is
/// walked, says of the same tokens, and what single bytes say of all others.
#[test]
fn masks_near_a_bound_are_those_of_a_walk() {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).chain([b"<end>".to_vec()]).collect();
    for text in ["ab", "abc", "x", "xxxx", "12", "  ", "\u{e9}", "\u{e9}a", "\u{80}", "\u{20ac}\u{20ac}", "\u{65e5}\u{672c}", "\u{1f600}", "a\u{10ffff}b", "abcdefghijkl", "\"", "\",", "a\"", "\":", "\\n", "b\\", "\n"] {
        words.push(text.as_bytes().to_vec());
    }
    words.extend([b"\xe2\x82".to_vec(), b"\xac".to_vec(), b"a\xf0\x9f".to_vec(), b"\xed\xa0\x80".to_vec(), vec![b'x'; 29], vec![b'x'; 30], vec![b'x'; 31], vec![b'x'; 40]]);
    let num_small = words.len();
    let letters: Vec<char> = "aex1 -_.\u{e9}\u{df}\u{20ac}\u{65e5}\u{1f600}\"".chars().collect();
    let mut at = 0usize;
    while words.len() < 17000 {
        at += 1;
        let mut number = at;
        let mut text = String::new();
        while number > 0 {
            text.push(letters[number % letters.len()]);
            number /= letters.len();
        }
        words.push(text.into_bytes());
    }
    let tokens: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let large = Vocabulary::new(&tokens, |id| id == END as usize, &[END]).unwrap();
    let small = Vocabulary::new(&tokens[..num_small], |id| id == END as usize, &[END]).unwrap();

    let string = |rest: &str| schema(&format!(r#"{{"type":"array","items":{{"type":"string"{rest}}}}}"#));
    let mut specs: Vec<String> = ["0", "1", "5", "29", "30", "31", "40"].iter().map(|n| string(&format!(r#","maxLength":{n}"#))).collect();
    specs.push(string(r#","minLength":2,"maxLength":4"#));
    for pattern in ["[a-z]{0,6}", "([^x]{1,5}|x{1,9})", "([^x]|xx){1,6}", "(.{4}|\u{65e5}.{9})", "[^\u{20ac}]{0,4}", ".{3}\\\\n.{5}"] {
        specs.push(string(&format!(r#","pattern":"^{pattern}$""#)));
    }
    specs.push(schema(r#"{"type":"array","items":{"anyOf":[{"type":"string","maxLength":3},{"type":"string","minLength":5,"maxLength":6},{"const":"xxxxxxxxx"}]}}"#));
    specs.push(schema(r#"{"type":"object","properties":{"ab":{"type":"string","maxLength":7}},"additionalProperties":{"type":"string","maxLength":2}}"#));
    specs.push(r#"{"kind":"regex","pattern":"[^\"\\\\\u0000-\u001f\u007f]{0,5}"}"#.to_string());
    // Lexemes end inside of such texts, and what follows depends on where they began.
    specs.push(r#"{"kind":"lark","grammar":"start: A X X Q | B X Q\nA: /[ a-m]/\nB: /[^ a-m]/\nX: /(?s:.){2}/\nQ: /\"+/"}"#.to_string());
    specs.push(r#"{"kind":"lark","grammar":"start: (A | B) C\nA: /[^x\"]{1,3}/\nB: /x{1,3}/\nC: /\"+/"}"#.to_string());

    let mut random = 1u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % n
    };
    for spec in specs {
        let grammars = (large.compile(&spec).unwrap_or_else(|f| panic!("{spec}: {}", f.message)), small.compile(&spec).unwrap());
        for _ in 0..6 {
            let (mut of_large, mut of_small) = (grammars.0.matcher().unwrap(), grammars.1.matcher().unwrap());
            let mut text = Vec::new();
            for _ in 0..12 {
                if of_small.complete() {
                    break;
                }
                let (got, wanted) = (of_large.mask().unwrap(), of_small.mask().unwrap());
                let name = |id: usize| format!("{spec}: {:?} behind {:?}", String::from_utf8_lossy(&words[id]), String::from_utf8_lossy(&text));
                for id in 0..num_small {
                    assert_eq!(got.is_allowed(id as u32), wanted.is_allowed(id as u32), "{}", name(id));
                }
                for _ in 0..40 {
                    let id = num_small + below(words.len() - num_small);
                    let mut num_taken = 0;
                    while num_taken < words[id].len() && of_small.mask().unwrap().is_allowed(words[id][num_taken] as u32) {
                        of_small.accept(words[id][num_taken] as u32).unwrap();
                        num_taken += 1;
                    }
                    of_small.rollback(num_taken).unwrap();
                    assert_eq!(got.is_allowed(id as u32), num_taken == words[id].len(), "{}", name(id));
                }
                let allowed: Vec<u32> = (0..num_small as u32).filter(|&id| id != END && wanted.is_allowed(id)).collect();
                if allowed.is_empty() {
                    break;
                }
                let next = allowed[below(allowed.len())];
                of_large.accept(next).unwrap();
                of_small.accept(next).unwrap();
                text.extend_from_slice(&words[next as usize]);
            }
        }
    }
}

/// What one value is held against at once doubles the compiler's work with each pattern, wherever it is said.
#[test]
fn patterns_that_hold_of_one_value_are_few() {
    let list = |count: usize, of: &str| (0..count).map(|i| of.replace('N', &i.to_string())).collect::<Vec<_>>().join(",");
    let pattern = r#"{"pattern":"a.{N}b"}"#;
    let anchored = r#"{"pattern":"^(a|bN)"}"#;
    assert!(start(&schema(&format!(r#"{{"type":"string","allOf":[{}]}}"#, list(8, anchored)))).is_ok());
    let few = "more than 8 patterns and formats hold of one value";
    let many = list(40, pattern);
    let property = list(40, r#"{"properties":{"p":{"pattern":"a.{N}b"}}}"#);
    let item = list(40, r#"{"items":{"pattern":"a.{N}b"}}"#);
    let options = list(40, r#"{"anyOf":[{"pattern":"a.{N}b"},{"pattern":"c.{N}d"}]}"#);
    let (first, second) = (list(5, pattern), list(5, r#"{"format":"date","minLength":N}"#));
    for (text, why) in [
        (format!(r#"{{"allOf":[{many}]}}"#), few),
        (format!(r#"{{"items":{{"allOf":[{{"allOf":[{many}]}}]}}}}"#), few),
        (format!(r#"{{"allOf":[{property}]}}"#), few),
        (format!(r#"{{"allOf":[{item}]}}"#), few),
        (format!(r##"{{"$ref":"#/$defs/a","allOf":[{first}],"$defs":{{"a":{{"allOf":[{second}]}}}}}}"##), few),
        (format!(r#"{{"allOf":[{options}]}}"#), "it combines too many schemas"),
        (format!(r#"{{"properties":{{"p":{{"allOf":[{first}]}}}},"allOf":[{{"additionalProperties":{{"allOf":[{second}]}}}}]}}"#), few),
    ] {
        assert!(refusal(&schema(&text)).ends_with(why), "{text}: {}", refusal(&schema(&text)));
    }
    // Alternatives do not add up, nor do properties of different names.
    for text in [
        format!(r#"{{"anyOf":[{}]}}"#, list(40, anchored)),
        format!(r#"{{"allOf":[{}]}}"#, list(40, r#"{"type":"object","properties":{"pN":{"type":"string","format":"date"}}}"#)),
        r##"{"anyOf":[{"type":"string","pattern":"^a"},{"type":"array","items":{"$ref":"#"}}]}"##.to_owned(),
    ] {
        assert!(start(&schema(&text)).is_ok(), "{text}: {}", refusal(&schema(&text)));
    }
}

#[test]
fn refusals_name_keyword_and_place() {
    assert_eq!(refusal(&schema(r#"{"properties":{"a/b":{"not":{}}}}"#)), r#"the schema: keyword "not" at "/properties/a~1b": it is not supported"#);
    assert!(refusal(&schema(r#"{"items":{"format":"iri"}}"#)).starts_with(r#"the schema: keyword "format" at "/items": "#));
    assert!(refusal(&schema(r##"{"$defs":{"n":{"minimum":"1"}},"items":{"$ref":"#/$defs/n"}}"##)).contains(r#"keyword "minimum" at "/$defs/n""#));
    assert!(refusal(&schema(r#"{"oneOf":[{"type":"string"},{"minLength":2}]}"#)).contains(r#"keyword "oneOf" at its root"#));
    assert!(refusal(&schema(r#"{"$ref":"https://example.com"}"#)).contains(r#"keyword "$ref" at its root"#));
    let itself = "it leads back to itself";
    let optional = r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"type":"object"},{"$ref":"#/$defs/a"}]}}}"##;
    assert_eq!(refusal(&schema(optional)), format!(r#"the schema: keyword "$ref" at "/properties/a": {itself}"#));
    for looped in [r##"{"$ref":"#"}"##, r##"{"items":{"anyOf":[{"$ref":"#/items"}]}}"##] {
        assert!(refusal(&schema(looped)).ends_with(itself), "{looped}");
    }
    for grows in [r##"{"items":{"$ref":"#"}}"##, r##"{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]}"##, r##"{"properties":{"a":{"allOf":[{"$ref":"#"}]}}}"##] {
        assert_eq!(refusal(&schema(grows)), "", "{grows}");
    }
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
    let patterns = |n: usize| (0..n).map(|i| format!(r#""^a{i}_":{{}}"#)).collect::<Vec<_>>().join(",");
    assert_eq!(refusal(&schema(&format!(r#"{{"patternProperties":{{{}}}}}"#, patterns(100)))), "");
    assert!(refusal(&schema(&format!(r#"{{"patternProperties":{{{}}}}}"#, patterns(101)))).contains(r#"keyword "patternProperties" at its root: more than 100"#));
    let objects = |n: usize| (0..n).map(|i| format!(r#""o{i}":{{"patternProperties":{{{}}}}}"#, patterns(100))).collect::<Vec<_>>().join(",");
    assert!(refusal(&schema(&format!(r#"{{"properties":{{{}}}}}"#, objects(5)))).contains(r#"keyword "patternProperties" at "/properties/o4""#));
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
