//! Documents read as Go reads them, and documents refused by Go.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn fields(text: &str) -> Fields<'_> {
    Json::parse(text.as_bytes()).unwrap().fields().unwrap()
}

#[test]
fn names_are_known_in_any_case_and_the_last_counts() {
    let text =
        r#"{"Cmd":"exact","cMD":"odd","\u0043md":"escaped","KIND":"a","\u212aIND":"b","ſize":7,"size":null}"#;
    assert_eq!(fields(text).text("cmd").unwrap(), "escaped");
    assert_eq!(fields(text).text("kind").unwrap(), "b");
    assert_eq!(fields(text).integer("size").unwrap(), Some(7), "null says nothing");
    assert_eq!(fields(text).text("kin").unwrap(), "");
}

#[test]
fn objects_of_one_name_are_put_together_and_lists_are_not() {
    let text = r#"{"c":{"a":"1","b":"2"},"C":{"B":"3"},"l":["x"],"L":["y",null],"m":{"K":"1","k":"2"},"M":{"K":"3"}}"#;
    let found = fields(text);
    let object = found.object("c").unwrap();
    assert_eq!((object.text("a").unwrap(), object.text("b").unwrap()), ("1".into(), "3".into()));
    assert_eq!(found.texts("l").unwrap(), ["y", ""]);
    let map = found.text_map("m").unwrap();
    assert_eq!(map, [("K".into(), "3".into()), ("k".into(), "2".into())].into());
    let emptied = r#"{"l":["x"],"l":null,"m":{"a":"1"},"m":null,"c":{"a":"1"},"c":null}"#;
    assert!(fields(emptied).texts("l").unwrap().is_empty() && fields(emptied).map("m").unwrap().is_empty());
    assert_eq!(fields(emptied).object("c").unwrap().text("a").unwrap(), "1");
}

#[test]
fn letters_that_are_none_are_replaced() {
    let bytes = b"{\"a\":\"\\ud83d\\ude00 \\ud800\\u0041 \\udc00\\n\\/ \xff\xe2\x82\"}";
    let found = Json::parse(bytes).unwrap().fields().unwrap().text("a").unwrap();
    assert_eq!(found, "😀 \u{fffd}A \u{fffd}\n/ \u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn what_nobody_asks_for_may_be_anything_that_is_json() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = format!(r#"{{"x":{deep},"y":1e999,"z":-0.1E+7,"\ud800":"}}","a":"found","w":true}}"#);
    assert_eq!(fields(&text).text("a").unwrap(), "found");
}

#[test]
fn what_is_no_json_is_refused() {
    for wrong in [
        "",
        "{",
        "{}x",
        "{} {}",
        "{\"a\":01}",
        "{\"a\" 1}",
        "[1,]",
        "\u{feff}{}",
        "{'a':1}",
        "{\"a\":\"\n\"}",
    ] {
        assert!(Json::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
    }
    assert_eq!(Json::first(b" {\"a\":\"b\"} trailing").unwrap().fields().unwrap().text("a").unwrap(), "b");
    assert!(Json::first(b"<html>").is_err());
}

#[test]
fn values_of_another_kind_are_refused_by_name_and_kind() {
    let found = fields(r#"{"a":1,"b":"x","c":[7],"d":1.0,"e":9223372036854775808,"f":{"g":true}}"#);
    for (read, words) in [
        (found.text("a").unwrap_err(), "a: a number where a text is wanted"),
        (found.texts("b").unwrap_err(), "b: a text where a list is wanted"),
        (found.texts("c").unwrap_err(), "c: a number where a text is wanted"),
        (found.object("c").unwrap_err(), "c: a list where an object is wanted"),
        (found.integer("b").unwrap_err(), "b: a text where a number is wanted"),
        (found.integer("d").unwrap_err(), "d: 1.0 where a whole number of 64 bits is wanted"),
        (found.integer("e").unwrap_err(), "e: 9223372036854775808 where a whole number of 64 bits is wanted"),
        (found.text_map("f").unwrap_err(), "f: a truth value where a text is wanted"),
    ] {
        assert_eq!(read, words);
    }
}

/// Any document.
pub(crate) fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".{0,5}", inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// The same document, read with nothing but this module.
fn read(json: Json<'_>) -> Value {
    match json.kind() {
        "null" => Value::Null,
        "a truth value" => json.0.starts_with(b"true").into(),
        "a text" => json.text().unwrap().into(),
        "a list" => json.items().unwrap().into_iter().map(read).collect(),
        "an object" => json.entries().map(|(key, value)| (unquoted(key), read(value))).collect(),
        _ => json.integer().map_or_else(|_| json.number().unwrap().into(), Value::from),
    }
}

proptest! {
    #[test]
    fn documents_are_read_as_they_were_written(document in document(), pretty: bool) {
        let text = match pretty {
            true => serde_json::to_string_pretty(&document).unwrap(),
            false => document.to_string(),
        };
        prop_assert_eq!(read(Json::parse(text.as_bytes()).unwrap()), document);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for read in [Json::parse(&bytes), Json::first(&bytes)].into_iter().flatten() {
            let _ = (read.items(), read.text(), read.integer(), read.number());
            for (key, value) in read.entries() {
                let _ = (unquoted(key), value.text());
            }
        }
    }
}
