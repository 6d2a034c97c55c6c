//! `Mcp-Param-*`: arguments that a tool's schema maps to headers (`x-mcp-header`).

use std::borrow::Cow;
use std::collections::HashSet;

use mgp_json::{can_contain_string, members};
use serde_json::Value;

use super::{
    PARAM_PREFIX, ReceivedHeader, decode_value, encode, mismatch_error, require, unexpected_error,
    unreadable_error,
};
use crate::refusal::Refusal;

const ANNOTATION: &str = "x-mcp-header";

/// Keywords whose values are no schemas: annotations in them are ignored.
const VALUE_KEYWORDS: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords that contain schemas by name, where a name may be any word.
const SCHEMA_MAPS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// The largest integer that a double represents exactly; larger ones may not be mirrored.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The types an argument in a header may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Unchanged.
    Text,
    /// Its decimal digits.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The header's name, with `Mcp-Param-`, in the schema's case.
    pub header: Box<str>,
    /// The path of members from the arguments to the value; never empty.
    pub path: Box<[Box<str>]>,
    /// Its type in the schema.
    pub kind: ParamKind,
}

/// An invalid annotation; its tool is not listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// The schema is not JSON, or too deep to be searched.
    #[error("inputSchema cannot be read")]
    Unreadable,
    /// Empty, not a string, or not a token of RFC 9110.
    #[error("x-mcp-header at {0} is no header name")]
    Name(String),
    /// Two annotations with one name, ignoring case.
    #[error("x-mcp-header {0} stands twice")]
    Duplicate(String),
    /// Not a string, an integer or a boolean.
    #[error("x-mcp-header at {0}: only string, integer and boolean can be headers")]
    Kind(String),
    /// Not on a property that is reached through `properties` only.
    #[error("x-mcp-header at {0} is not reached through properties alone")]
    Place(String),
}

/// Finds the annotations of an `inputSchema`, in its order.
///
/// # Errors
/// An annotation is invalid: the tool must be left out of lists.
pub fn find_annotations(input_schema: &str) -> Result<Vec<ParamHeader>, BadAnnotation> {
    if !can_contain_string(input_schema.as_bytes(), ANNOTATION) {
        return Ok(Vec::new());
    }
    let schema: Value =
        serde_json::from_str(input_schema).map_err(|_| BadAnnotation::Unreadable)?;
    let mut search = AnnotationSearch::default();
    search.visit_schema(&schema, true)?;
    Ok(search.headers)
}

#[derive(Default)]
struct AnnotationSearch {
    headers: Vec<ParamHeader>,
    names: HashSet<String>,
    /// Keywords and names from the root to the current schema.
    location: Vec<String>,
    /// Names of the properties from the root; without meaning if `reached` is false.
    path: Vec<Box<str>>,
}

impl AnnotationSearch {
    /// Searches a schema; `reached`: only `properties` led here.
    fn visit_schema(&mut self, schema: &Value, reached: bool) -> Result<(), BadAnnotation> {
        match schema {
            Value::Object(keywords) => {
                if let Some(name) = keywords.get(ANNOTATION) {
                    self.add_annotation(name, keywords.get("type"), reached)?;
                }
                for (keyword, value) in keywords {
                    if !VALUE_KEYWORDS.contains(&keyword.as_str()) {
                        self.visit_keyword(keyword, value, reached)?;
                    }
                }
                Ok(())
            }
            Value::Array(all) => all.iter().try_for_each(|one| self.visit_schema(one, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn visit_keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        reached: bool,
    ) -> Result<(), BadAnnotation> {
        self.location.push(keyword.to_owned());
        match value.as_object().filter(|_| SCHEMA_MAPS.contains(&keyword)) {
            Some(schemas) => {
                let reached = reached && keyword == "properties";
                for (name, schema) in schemas {
                    self.location.push(name.clone());
                    self.path.push(name.as_str().into());
                    self.visit_schema(schema, reached)?;
                    self.path.pop();
                    self.location.pop();
                }
            }
            None => self.visit_schema(value, false)?,
        }
        self.location.pop();
        Ok(())
    }

    fn add_annotation(
        &mut self,
        name: &Value,
        kind: Option<&Value>,
        reached: bool,
    ) -> Result<(), BadAnnotation> {
        let location = || format!("/{}", self.location.join("/"));
        if !reached || self.path.is_empty() {
            return Err(BadAnnotation::Place(location()));
        }
        let token = name.as_str().filter(|name| is_token(name));
        let token = token.ok_or_else(|| BadAnnotation::Name(location()))?;
        let kind = kind.and_then(parse_kind);
        let kind = kind.ok_or_else(|| BadAnnotation::Kind(location()))?;
        if !self.names.insert(token.to_ascii_lowercase()) {
            return Err(BadAnnotation::Duplicate(token.to_owned()));
        }
        self.headers.push(ParamHeader {
            header: format!("{PARAM_PREFIX}{token}").into(),
            path: self.path.as_slice().into(),
            kind,
        });
        Ok(())
    }
}

/// Parses `type`, which may also allow null: then the argument is not repeated.
fn parse_kind(kind: &Value) -> Option<ParamKind> {
    if let Value::Array(kinds) = kind {
        let mut real = kinds.iter().filter(|kind| *kind != "null");
        let only = real.next().filter(|_| real.next().is_none())?;
        return only.is_string().then(|| parse_kind(only)).flatten();
    }
    let known = [
        ("string", ParamKind::Text),
        ("integer", ParamKind::Integer),
        ("boolean", ParamKind::Boolean),
    ];
    let (_, kind) = known.into_iter().find(|(name, _)| kind == name)?;
    Some(kind)
}

/// `1*tchar` of RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(tchar)
}

/// The headers required for these arguments: each name with its value as sent.
#[must_use]
pub fn param_headers<'p>(
    params: &'p [ParamHeader],
    arguments: Option<&str>,
) -> Vec<(&'p str, String)> {
    let received = params.iter().filter_map(|param| {
        let value = body_value(param, arguments)?;
        Some((&*param.header, encode(&value.to_header_text()).into_owned()))
    });
    received.collect()
}

/// Checks the `Mcp-Param-*` headers of a call against its arguments. `lookup` looks a header up by name.
/// Headers that are not in the schema are ignored.
///
/// # Errors
/// [`Refusal::HeaderMismatch`]: a header is missing, unreadable, without its argument, or different.
pub fn check_params<'h>(
    params: &[ParamHeader],
    arguments: Option<&str>,
    lookup: impl Fn(&str) -> ReceivedHeader<'h>,
) -> Result<(), Refusal> {
    for param in params {
        let header = &*param.header;
        match (body_value(param, arguments), lookup(header)) {
            (None, ReceivedHeader::Absent) => {}
            (None, ReceivedHeader::Text(received)) => {
                return Err(unexpected_error(header, received));
            }
            (None, ReceivedHeader::Unreadable) => return Err(unreadable_error(header)),
            (Some(value), received) => {
                let received = decode_value(header, require(header, received)?)?;
                if !value.matches_header(&received) {
                    return Err(mismatch_error(header, &received, &value.to_header_text()));
                }
            }
        }
    }
    Ok(())
}

/// An argument's value that a header can repeat.
enum BodyValue<'a> {
    Text(String),
    /// A number's own digits.
    Number(&'a str),
    Boolean(&'a str),
}

impl BodyValue<'_> {
    fn to_header_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Boolean(text) => Cow::Borrowed(text),
            Self::Number(digits) => match parse_safe_integer(digits) {
                Some(number) => Cow::Owned(number.to_string()),
                None => Cow::Borrowed(digits),
            },
        }
    }

    fn matches_header(&self, received: &str) -> bool {
        match self {
            Self::Text(text) => text == received,
            Self::Boolean(text) => *text == received,
            Self::Number(digits) => {
                match (parse_safe_integer(digits), parse_safe_integer(received)) {
                    (Some(body_number), Some(header_number)) => body_number == header_number,
                    _ => *digits == received,
                }
            }
        }
    }
}

/// Parses a JSON number that is an exact integer, in any notation: `42`, `42.0`, `4.2e1`.
fn parse_safe_integer(digits: &str) -> Option<i64> {
    let number: serde_json::Number = serde_json::from_str(digits).ok()?;
    let whole = number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|n| n.fract() == 0.0)?;
        // Checked below against the safe range, within which the cast is exact.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "out of range becomes the ends of i64"
        )]
        Some(float as i64)
    })?;
    (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER)
        .contains(&whole)
        .then_some(whole)
}

/// The value to repeat. Null and absent values are not repeated, nor are objects and arrays, which the
/// schema rejects.
fn body_value<'a>(param: &ParamHeader, arguments: Option<&'a str>) -> Option<BodyValue<'a>> {
    let mut here = arguments?;
    for step in &param.path {
        // Most parsers read the last of duplicate names.
        let mut all = members(here)?.into_iter().rev();
        here = all.find(|(name, _)| **name == **step)?.1.get();
    }
    match here.as_bytes().first()? {
        b'"' => serde_json::from_str(here).ok().map(BodyValue::Text),
        b't' | b'f' => Some(BodyValue::Boolean(here)),
        b'-' | b'0'..=b'9' => Some(BodyValue::Number(here)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "deep":{"type":"object","properties":{
            "count":{"type":["integer","null"],"x-mcp-header":"count"}}},
        "dry":{"type":"boolean","default":{"x-mcp-header":"no"},"x-mcp-header":"Dry"},
        "x-mcp-header":{"type":"number"}}}"#;

    fn check(arguments: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let params = find_annotations(SCHEMA).unwrap();
        let lookup = |name: &str| {
            let found = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            ReceivedHeader::from_values(found.map(|(_, value)| value.as_bytes()))
        };
        check_params(&params, Some(arguments), lookup).map_err(|e| e.to_string())
    }

    #[test]
    fn annotations_are_found_through_properties() {
        let found = find_annotations(SCHEMA).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|p| (&*p.header, p.path.join("/"), p.kind))
            .collect();
        assert_eq!(
            found,
            [
                ("Mcp-Param-Region", "region".to_owned(), ParamKind::Text),
                (
                    "Mcp-Param-count",
                    "deep/count".to_owned(),
                    ParamKind::Integer
                ),
                ("Mcp-Param-Dry", "dry".to_owned(), ParamKind::Boolean),
            ]
        );
        assert_eq!(find_annotations(r#"{"type":"object"}"#), Ok(Vec::new()));
    }

    /// SEP-2243: a tool with any of these is left out of lists.
    #[test]
    fn invalid_annotations_are_rejected() {
        let with = |name: &str, rest: &str| {
            find_annotations(&format!(
                r#"{{"properties":{{"a":{{"x-mcp-header":{name}{rest}}}}}}}"#
            ))
        };
        let string = r#","type":"string""#;
        for name in [
            r#""""#,
            r#""a b""#,
            r#""a\r\nb""#,
            r#""a:b""#,
            r#""é""#,
            "7",
            "null",
        ] {
            assert!(
                matches!(with(name, string), Err(BadAnnotation::Name(_))),
                "{name}"
            );
        }
        for kind in [
            r#","type":"number""#,
            r#","type":"object""#,
            r#","type":"null""#,
            r#","type":["string","integer"]"#,
            r#","type":[["string"]]"#,
            "",
        ] {
            assert!(
                matches!(with(r#""A""#, kind), Err(BadAnnotation::Kind(_))),
                "{kind}"
            );
        }
        for location in [
            r##"{"x-mcp-header":"A","type":"object"}"##,
            r#"{"properties":{"l":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"properties":{"l":{"items":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}"#,
            r#"{"$defs":{"d":{"type":"string","x-mcp\u002dheader":"A"}}}"#,
        ] {
            assert!(
                matches!(find_annotations(location), Err(BadAnnotation::Place(_))),
                "{location}"
            );
        }
        let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#;
        assert_eq!(
            find_annotations(twice),
            Err(BadAnnotation::Duplicate("a".into()))
        );
    }

    /// The table of the specification: present, null, absent, omitted.
    #[test]
    fn argument_and_header_must_both_be_present_or_absent() {
        let region = ("mcp-param-region", "us");
        assert_eq!(check(r#"{"region":"us"}"#, &[region]), Ok(()));
        assert_eq!(check(r#"{"region":null}"#, &[]), Ok(()));
        assert_eq!(check("{}", &[("Mcp-Param-Other", "x")]), Ok(()));
        for (arguments, headers, why) in [
            (
                r#"{"region":"us"}"#,
                &[][..],
                "Mcp-Param-Region header is missing",
            ),
            (
                r#"{"region":null}"#,
                &[region],
                "Mcp-Param-Region header value 'us' has no value in the body",
            ),
            (
                "{}",
                &[region],
                "Mcp-Param-Region header value 'us' has no value in the body",
            ),
            (
                r#"{"region":"US"}"#,
                &[region],
                "Mcp-Param-Region header value 'us' does not match body value 'US'",
            ),
            (
                r#"{"dry":true}"#,
                &[("Mcp-Param-Dry", "True")],
                "Mcp-Param-Dry header value 'True' does not match body value 'true'",
            ),
            (
                r#"{"region":"us","region":"eu"}"#,
                &[region],
                "Mcp-Param-Region header value 'us' does not match body value 'eu'",
            ),
        ] {
            assert_eq!(
                check(arguments, headers),
                Err(format!("Header mismatch: {why}"))
            );
        }
    }

    #[test]
    fn integers_are_compared_as_numbers() {
        let count = |body: &str, header: &str| {
            let arguments = format!(r#"{{"deep":{{"count":{body}}}}}"#);
            check(&arguments, &[("Mcp-Param-Count", header)]).is_ok()
        };
        for (body, header) in [
            ("42", "42"),
            ("42", "42.0"),
            ("4.2e1", "42"),
            ("-7", "-7"),
            ("0", "-0"),
        ] {
            assert!(count(body, header), "{body} {header}");
        }
        for (body, header) in [
            ("42", "43"),
            ("42", "inf"),
            ("42", "0x2a"),
            ("9007199254740993", "9007199254740992"),
            ("9007199254740994.0", "9007199254740994"),
            (r#""42""#, "42.0"),
        ] {
            assert!(!count(body, header), "{body} {header}");
        }
    }

    #[test]
    fn sent_headers_pass_the_check() {
        let arguments = r#"{"region":"Zürich","deep":{"count":4.2e1},"dry":false}"#;
        let params = find_annotations(SCHEMA).unwrap();
        let sent = param_headers(&params, Some(arguments));
        let sent: Vec<(&str, &str)> = sent.iter().map(|(n, v)| (*n, v.as_str())).collect();
        assert_eq!(
            sent[1..],
            [("Mcp-Param-count", "42"), ("Mcp-Param-Dry", "false")]
        );
        assert_eq!(check(arguments, &sent), Ok(()));
        assert!(param_headers(&params, None).is_empty());
    }
}
