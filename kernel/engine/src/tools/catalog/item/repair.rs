//! Small slips in definitions, mended where that changes nothing of what they mean: strict clients lose the whole list
//! with one of them.

use std::borrow::Cow;

use mgp_json::{elements, members, render_object};
use serde_json::value::RawValue;

use super::{BadItem, DEFINITION_MAX};
use crate::tools::catalog::ListKind;
use crate::tools::schema::DEPTH_MAX;

/// Slips of one definition that are named.
const REPORTED_MAX: usize = 4;

/// Keywords of JSON Schema that are never null. `default`, `const`, `enum` and `example` hold values.
const NON_NULL_KEYWORDS: [&str; 47] = [
    "$schema",
    "$id",
    "$ref",
    "$comment",
    "$anchor",
    "$defs",
    "definitions",
    "title",
    "description",
    "type",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
];

/// A definition that was mended.
pub(in crate::tools::catalog) struct RepairedDefinition {
    pub(in crate::tools::catalog) text: String,
    /// What was wrong with it, in words.
    pub(in crate::tools::catalog) slips: String,
}

/// What a member of a definition has to be.
#[derive(Clone, Copy)]
enum MemberForm {
    Text,
    /// A moment, as RFC 3339 writes it.
    Timestamp,
    /// A number without a fraction.
    Integer,
    /// A number from 0 to 1.
    UnitInterval,
    Boolean,
    TextArray,
    Object,
    ArrayOf(&'static [&'static str]),
    OneOf(&'static [&'static str]),
    /// An object with these members.
    ObjectWith(&'static [(&'static str, MemberForm)]),
    /// Objects with these members.
    ObjectsWith(&'static [(&'static str, MemberForm)]),
    /// Anything but null.
    NotNull,
    InputSchema,
    OutputSchema,
}

const ICON: &[(&str, MemberForm)] = &[
    ("src", MemberForm::Text),
    ("mimeType", MemberForm::Text),
    ("sizes", MemberForm::TextArray),
    ("theme", MemberForm::OneOf(&["light", "dark"])),
];
const HINTS: &[(&str, MemberForm)] = &[
    ("title", MemberForm::Text),
    ("readOnlyHint", MemberForm::Boolean),
    ("destructiveHint", MemberForm::Boolean),
    ("idempotentHint", MemberForm::Boolean),
    ("openWorldHint", MemberForm::Boolean),
];
const ANNOTATIONS: &[(&str, MemberForm)] = &[
    ("audience", MemberForm::ArrayOf(&["user", "assistant"])),
    ("priority", MemberForm::UnitInterval),
    ("lastModified", MemberForm::Timestamp),
];
const EXECUTION: &[(&str, MemberForm)] = &[(
    "taskSupport",
    MemberForm::OneOf(&["forbidden", "optional", "required"]),
)];
/// Its `name`, and the type of `required`, are judged where they are read.
const ARGUMENT: &[(&str, MemberForm)] = &[
    ("title", MemberForm::Text),
    ("description", MemberForm::Text),
    ("required", MemberForm::NotNull),
];
const TOOL: &[(&str, MemberForm)] = &[
    ("title", MemberForm::Text),
    ("description", MemberForm::Text),
    ("icons", MemberForm::ObjectsWith(ICON)),
    ("annotations", MemberForm::ObjectWith(HINTS)),
    ("execution", MemberForm::ObjectWith(EXECUTION)),
    ("inputSchema", MemberForm::InputSchema),
    ("outputSchema", MemberForm::OutputSchema),
    ("_meta", MemberForm::Object),
];
const PROMPT: &[(&str, MemberForm)] = &[
    ("title", MemberForm::Text),
    ("description", MemberForm::Text),
    ("icons", MemberForm::ObjectsWith(ICON)),
    ("arguments", MemberForm::ObjectsWith(ARGUMENT)),
    ("_meta", MemberForm::Object),
];
const RESOURCE: &[(&str, MemberForm)] = &[
    ("title", MemberForm::Text),
    ("description", MemberForm::Text),
    ("mimeType", MemberForm::Text),
    ("size", MemberForm::Integer),
    ("icons", MemberForm::ObjectsWith(ICON)),
    ("annotations", MemberForm::ObjectWith(ANNOTATIONS)),
    ("_meta", MemberForm::Object),
];

/// Mends a definition; `None` where there is nothing to mend.
///
/// # Errors
/// A member has a form that no version of MCP knows, and that cannot be mended.
pub(in crate::tools::catalog) fn repair(
    kind: ListKind,
    raw: &str,
) -> Result<Option<RepairedDefinition>, BadItem> {
    if raw.len() > DEFINITION_MAX {
        return Ok(None);
    }
    let known = match kind {
        ListKind::Tools => TOOL,
        ListKind::Prompts => PROMPT,
        ListKind::Resources | ListKind::Templates => RESOURCE,
    };
    let mut slips = Defects::default();
    let text = repair_object(raw, known, "", &mut slips)?;
    let mended = text.map(|text| RepairedDefinition {
        text,
        slips: slips.describe(),
    });
    Ok(mended)
}

/// What was wrong, each once.
#[derive(Default)]
struct Defects(Vec<String>);

impl Defects {
    fn record(&mut self, slip: String) {
        if !self.0.contains(&slip) && self.0.len() <= REPORTED_MAX {
            self.0.push(slip);
        }
    }

    fn describe(&self) -> String {
        let named = &self.0[..self.0.len().min(REPORTED_MAX)];
        let more = if self.0.len() > REPORTED_MAX {
            " and more"
        } else {
            ""
        };
        format!("{}{more}", named.join(", "))
    }
}

/// What becomes of a member.
enum MemberAction {
    Keep,
    Remove,
    Replace(String),
}

fn repair_object(
    json: &str,
    known: &'static [(&'static str, MemberForm)],
    place: &str,
    slips: &mut Defects,
) -> Result<Option<String>, BadItem> {
    let Some(all) = members(json) else {
        return Ok(None);
    };
    let mut rebuilt = ObjectBuilder::default();
    for (name, value) in &all {
        let form = known.iter().find(|(known, _)| known == name);
        let fate = match form {
            Some((member, form)) => repair_member(value.get(), member, *form, place, slips)?,
            None => MemberAction::Keep,
        };
        rebuilt.apply(name.clone(), value, fate);
    }
    Ok(rebuilt.finish())
}

fn repair_member(
    json: &str,
    member: &'static str,
    form: MemberForm,
    place: &str,
    slips: &mut Defects,
) -> Result<MemberAction, BadItem> {
    let wrong = |wanted| Err(BadItem::InvalidMember(member, wanted));
    let whole = |text: Option<String>| text.map_or(MemberAction::Keep, MemberAction::Replace);
    // Without a schema of its arguments it is no tool.
    if json == "null" && !matches!(form, MemberForm::InputSchema) {
        slips.record(format!("\"{place}{member}\" is null"));
        return Ok(MemberAction::Remove);
    }
    match form {
        MemberForm::Text if !json.starts_with('"') => wrong("a text"),
        MemberForm::Timestamp if !is_timestamp(json) => wrong("a time as of RFC 3339"),
        MemberForm::Integer if parse_number(json).is_none_or(|n| n.fract() != 0.0) => {
            wrong("a whole number")
        }
        MemberForm::UnitInterval
            if parse_number(json).is_none_or(|n| !(0.0..=1.0).contains(&n)) =>
        {
            wrong("a number from 0 to 1")
        }
        MemberForm::Boolean if !matches!(json, "true" | "false") => wrong("true or false"),
        MemberForm::Object if !json.starts_with('{') => wrong("an object"),
        MemberForm::TextArray => match serde_json::from_str::<Vec<String>>(json) {
            Ok(_) => Ok(MemberAction::Keep),
            Err(_) => wrong("an array of texts"),
        },
        MemberForm::ArrayOf(words) => match serde_json::from_str::<Vec<Cow<'_, str>>>(json) {
            Ok(said) if said.iter().all(|word| words.contains(&&**word)) => Ok(MemberAction::Keep),
            Ok(_) | Err(_) => wrong("an array of the words that MCP has for it"),
        },
        MemberForm::OneOf(words) => match serde_json::from_str::<Cow<'_, str>>(json) {
            Ok(word) if words.contains(&&*word) => Ok(MemberAction::Keep),
            Ok(_) | Err(_) => wrong("one of the words that MCP has for it"),
        },
        MemberForm::ObjectWith(known) if json.starts_with('{') => {
            let place = format!("{member}.");
            repair_object(json, known, &place, slips).map(whole)
        }
        MemberForm::ObjectWith(_) => wrong("an object"),
        MemberForm::ObjectsWith(known) => {
            repair_object_array(json, known, member, slips).map(whole)
        }
        MemberForm::InputSchema => Ok(whole(repair_root_schema(json, member, true, slips))),
        MemberForm::OutputSchema => Ok(whole(repair_root_schema(json, member, false, slips))),
        MemberForm::Text
        | MemberForm::Timestamp
        | MemberForm::Integer
        | MemberForm::UnitInterval
        | MemberForm::Boolean
        | MemberForm::Object
        | MemberForm::NotNull => Ok(MemberAction::Keep),
    }
}

fn parse_number(json: &str) -> Option<f64> {
    serde_json::from_str(json).ok()
}

/// `2026-07-28T10:00:00Z`, with a fraction of a second and an offset where it has them.
fn is_timestamp(json: &str) -> bool {
    let text: String = serde_json::from_str(json).unwrap_or_default();
    let Some((date_time, zone)) = text.split_at_checked(19) else {
        return false;
    };
    let pattern = "dddd-dd-ddTdd:dd:dd";
    let fits = |pattern: &str, text: &str| {
        text.len() == pattern.len()
            && text
                .chars()
                .zip(pattern.chars())
                .all(|(c, wanted)| match wanted {
                    'd' => c.is_ascii_digit(),
                    wanted => c == wanted,
                })
    };
    let zone = zone.strip_prefix('.').map_or(zone, |rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    let offset = zone.strip_prefix(['+', '-']).unwrap_or_default();
    fits(pattern, date_time) && (zone == "Z" || fits("dd:dd", offset))
}

/// What is no array, or holds something else than objects, is judged by who reads it.
fn repair_object_array(
    json: &str,
    known: &'static [(&'static str, MemberForm)],
    member: &'static str,
    slips: &mut Defects,
) -> Result<Option<String>, BadItem> {
    let Some(items) = elements(json) else {
        return Ok(None);
    };
    let place = format!("{member}[].");
    let (mut texts, mut changed) = (Vec::with_capacity(items.len()), false);
    for item in items {
        let item = item.get();
        let is_icon = member == "icons";
        if is_icon && mgp_json::member(item, "src").is_none() {
            return Err(BadItem::InvalidMember(
                member,
                "an array of objects with \"src\"",
            ));
        }
        let text = repair_object(item, known, &place, slips)?;
        changed |= text.is_some();
        texts.push(text.map_or(Cow::Borrowed(item), Cow::Owned));
    }
    Ok(changed.then(|| format!("[{}]", texts.join(","))))
}

/// An object that is written anew.
#[derive(Default)]
struct ObjectBuilder<'a> {
    members: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    changed: bool,
}

impl<'a> ObjectBuilder<'a> {
    fn apply(&mut self, name: Cow<'a, str>, value: &'a RawValue, fate: MemberAction) {
        let value = match fate {
            MemberAction::Keep => Cow::Borrowed(value.get()),
            MemberAction::Replace(text) => {
                self.changed = true;
                Cow::Owned(text)
            }
            MemberAction::Remove => {
                self.changed = true;
                return;
            }
        };
        self.members.push((name, value));
    }

    fn set(&mut self, name: &'static str, value: impl Into<Cow<'a, str>>) {
        self.changed = true;
        self.members.push((Cow::Borrowed(name), value.into()));
    }

    /// The text, where it is another one.
    fn finish(self) -> Option<String> {
        self.changed.then(|| render_object(self.members))
    }
}

/// The root of a tool's schema. Arguments are always an object, so to say so changes nothing; the properties of the
/// root are the only ones that clients look into.
fn repair_root_schema(
    json: &str,
    member: &'static str,
    is_input: bool,
    slips: &mut Defects,
) -> Option<String> {
    let is_old = ["draft-04", "draft-06", "draft-07"];
    let dialect = mgp_json::member(json, "$schema").unwrap_or("");
    let reader = SchemaRepairer {
        member,
        allows_tuples: !is_old.iter().any(|draft| dialect.contains(draft)),
    };
    let mended = reader.repair_schema(json, 0, slips);
    let text = mended.as_deref().unwrap_or(json);
    let all = members(text)?;
    let mut rebuilt = ObjectBuilder::default();
    let mut typed = false;
    for (name, value) in &all {
        let fate = match &**name {
            "type" => {
                typed = true;
                let lists = is_input && value.get().starts_with('[');
                let types: Vec<Cow<'_, str>> = if lists {
                    serde_json::from_str(value.get()).unwrap_or_default()
                } else {
                    Vec::new()
                };
                if types.iter().any(|named| named == "object") {
                    slips.record(format!("{member}: \"type\" names more than \"object\""));
                    MemberAction::Replace("\"object\"".into())
                } else {
                    MemberAction::Keep
                }
            }
            "properties" => repair_boolean_properties(value.get(), member, slips)
                .map_or(MemberAction::Keep, MemberAction::Replace),
            _ => MemberAction::Keep,
        };
        rebuilt.apply(name.clone(), value, fate);
    }
    if is_input && !typed {
        slips.record(format!("{member} has no \"type\""));
        rebuilt.set("type", "\"object\"");
    }
    rebuilt.finish().or(mended)
}

/// `true` takes any value, as `{}` does, and `false` none.
fn repair_boolean_properties(json: &str, member: &str, slips: &mut Defects) -> Option<String> {
    let all = members(json)?;
    let mut rebuilt = ObjectBuilder::default();
    for (name, value) in &all {
        let instead = match value.get() {
            "true" => Some("{}"),
            "false" => Some(r#"{"not":{}}"#),
            _ => None,
        };
        if let Some(schema) = instead {
            slips.record(format!("{member}: a property is {}", value.get()));
            rebuilt.apply(name.clone(), value, MemberAction::Replace(schema.into()));
        } else {
            rebuilt.apply(name.clone(), value, MemberAction::Keep);
        }
    }
    rebuilt.finish()
}

struct SchemaRepairer {
    member: &'static str,
    /// `items` is one schema in its dialect: an array is that of an older draft.
    allows_tuples: bool,
}

impl SchemaRepairer {
    fn repair_schema(&self, json: &str, depth: usize, slips: &mut Defects) -> Option<String> {
        // One that nests deeper is refused as a whole.
        if depth > DEPTH_MAX || !json.starts_with('{') {
            return None;
        }
        let all = members(json)?;
        let tuple = self.allows_tuples
            && all
                .iter()
                .any(|(name, value)| name == "items" && value.get().starts_with('['));
        let mut rebuilt = ObjectBuilder::default();
        for (name, value) in &all {
            let json = value.get();
            if json == "null" && NON_NULL_KEYWORDS.contains(&&**name) {
                slips.record(format!("{}: \"{name}\" is null", self.member));
                rebuilt.apply(name.clone(), value, MemberAction::Remove);
                continue;
            }
            let inner = match &**name {
                "items" if tuple => {
                    slips.record(format!("{}: \"items\" is an array", self.member));
                    let items = self.repair_items(json, depth, slips);
                    rebuilt.set("prefixItems", items.unwrap_or_else(|| json.to_owned()));
                    continue;
                }
                "additionalItems" if tuple => {
                    let rest = self.repair_schema(json, depth + 1, slips);
                    rebuilt.set("items", rest.unwrap_or_else(|| json.to_owned()));
                    continue;
                }
                "properties" | "patternProperties" | "$defs" | "definitions"
                | "dependentSchemas" => {
                    if json.trim_matches(['[', ']', ' ']).is_empty() {
                        slips.record(format!("{}: \"{name}\" is an array", self.member));
                        rebuilt.apply(name.clone(), value, MemberAction::Remove);
                        continue;
                    }
                    self.repair_members(json, depth, slips)
                }
                "items"
                | "additionalProperties"
                | "additionalItems"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.repair_schema(json, depth + 1, slips),
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                    self.repair_items(json, depth, slips)
                }
                "examples" if !json.starts_with('[') => {
                    slips.record(format!("{}: \"examples\" is no array", self.member));
                    rebuilt.apply(name.clone(), value, MemberAction::Remove);
                    continue;
                }
                _ => None,
            };
            rebuilt.apply(
                name.clone(),
                value,
                inner.map_or(MemberAction::Keep, MemberAction::Replace),
            );
        }
        rebuilt.finish()
    }

    /// The schemas under the names of an object.
    fn repair_members(&self, json: &str, depth: usize, slips: &mut Defects) -> Option<String> {
        let all = members(json)?;
        let mut rebuilt = ObjectBuilder::default();
        for (name, value) in &all {
            let inner = self.repair_schema(value.get(), depth + 1, slips);
            rebuilt.apply(
                name.clone(),
                value,
                inner.map_or(MemberAction::Keep, MemberAction::Replace),
            );
        }
        rebuilt.finish()
    }

    /// The schemas of an array.
    fn repair_items(&self, json: &str, depth: usize, slips: &mut Defects) -> Option<String> {
        let items = elements(json)?;
        let (mut texts, mut changed) = (Vec::with_capacity(items.len()), false);
        for item in items {
            let inner = self.repair_schema(item.get(), depth + 1, slips);
            changed |= inner.is_some();
            texts.push(inner.map_or(Cow::Borrowed(item.get()), Cow::Owned));
        }
        changed.then(|| format!("[{}]", texts.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: ListKind, raw: &str) -> (String, String) {
        let mended = repair(kind, raw).unwrap().expect(raw);
        (mended.text, mended.slips)
    }

    /// null for an optional member of the protocol is absent; in `_meta` and in what a schema holds it is a value.
    #[test]
    fn a_null_for_an_optional_member_is_absent() {
        let raw = r#"{"name":"t","title":null,"description":null,"icons":null,"annotations":{"title":null,"readOnlyHint":true},"outputSchema":null,"_meta":null,"inputSchema":{"type":"object"}}"#;
        let (text, slips) = one(ListKind::Tools, raw);
        assert_eq!(
            text,
            r#"{"name":"t","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}}"#
        );
        assert!(
            slips.contains(r#""title" is null"#) && slips.ends_with("and more"),
            "{slips}"
        );
        let (text, _) = one(
            ListKind::Prompts,
            r#"{"name":"p","arguments":[{"name":"a","description":null,"required":null},{"name":"b"}]}"#,
        );
        assert_eq!(
            text,
            r#"{"name":"p","arguments":[{"name":"a"},{"name":"b"}]}"#
        );
        let (text, _) = one(
            ListKind::Resources,
            r#"{"uri":"a:b","name":"b","size":null,"mimeType":null,"annotations":{"audience":null}}"#,
        );
        assert_eq!(text, r#"{"uri":"a:b","name":"b","annotations":{}}"#);
        let data = r#"{"name":"t","_meta":{"a":null},"inputSchema":{"type":"object","properties":{"a":{"default":null,"enum":[null,1.0],"const":null}}}}"#;
        assert!(repair(ListKind::Tools, data).unwrap().is_none());
    }

    /// Each of these means the same before and after.
    #[test]
    fn slips_in_schemas_are_mended() {
        for (raw, wanted) in [
            ("{}", r#"{"type":"object"}"#),
            (
                r#"{"properties":{}}"#,
                r#"{"properties":{},"type":"object"}"#,
            ),
            (r#"{"type":["object","null"]}"#, r#"{"type":"object"}"#),
            (
                r#"{"type":"object","required":null}"#,
                r#"{"type":"object"}"#,
            ),
            (
                r#"{"type":"object","properties":[]}"#,
                r#"{"type":"object"}"#,
            ),
            (
                r#"{"type":"object","properties":null}"#,
                r#"{"type":"object"}"#,
            ),
            (
                r#"{"type":"object","properties":{"a":true,"b":false}}"#,
                r#"{"type":"object","properties":{"a":{},"b":{"not":{}}}}"#,
            ),
            (
                r#"{"type":"object","properties":{"a":{"items":[{"type":"string"}],"additionalItems":false,"description":null}}}"#,
                r#"{"type":"object","properties":{"a":{"prefixItems":[{"type":"string"}],"items":false}}}"#,
            ),
            (
                r#"{"type":"object","$defs":{"a":{"anyOf":[{"required":null},true]}}}"#,
                r#"{"type":"object","$defs":{"a":{"anyOf":[{},true]}}}"#,
            ),
        ] {
            let (text, _) = one(
                ListKind::Tools,
                &format!(r#"{{"name":"t","inputSchema":{raw}}}"#),
            );
            assert_eq!(
                text,
                format!(r#"{{"name":"t","inputSchema":{wanted}}}"#),
                "{raw}"
            );
        }
        for whole in [
            r#"{"type":"object","properties":{"a":{"type":"integer","minimum":1.0}}}"#,
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[{}]}}}"#,
            r#"{"type":"string"}"#,
            "true",
            "7",
        ] {
            let raw = format!(r#"{{"name":"t","inputSchema":{whole}}}"#);
            assert!(repair(ListKind::Tools, &raw).unwrap().is_none(), "{whole}");
        }
    }

    /// What cannot be mended is named.
    #[test]
    fn a_member_in_a_form_of_no_version_is_refused() {
        for (kind, raw) in [
            (
                ListKind::Tools,
                r#"{"name":"t","description":7,"inputSchema":{}}"#,
            ),
            (
                ListKind::Tools,
                r#"{"name":"t","annotations":{"readOnlyHint":"yes"}}"#,
            ),
            (ListKind::Tools, r#"{"name":"t","_meta":[]}"#),
            (ListKind::Tools, r#"{"name":"t","icons":[{}]}"#),
            (
                ListKind::Tools,
                r#"{"name":"t","execution":{"taskSupport":"maybe"}}"#,
            ),
            (
                ListKind::Resources,
                r#"{"uri":"a:b","name":"b","size":"7"}"#,
            ),
            (
                ListKind::Resources,
                r#"{"uri":"a:b","name":"b","annotations":{"audience":["all"]}}"#,
            ),
            (
                ListKind::Resources,
                r#"{"uri":"a:b","name":"b","annotations":{"priority":3}}"#,
            ),
            (
                ListKind::Templates,
                r#"{"uriTemplate":"a:{b}","name":"b","annotations":{"lastModified":"today"}}"#,
            ),
        ] {
            let refused = repair(kind, raw);
            assert!(matches!(refused, Err(BadItem::InvalidMember(..))), "{raw}");
        }
        for moment in ["2026-07-28T10:00:00Z", "2026-07-28T10:00:00.123+02:00"] {
            assert!(is_timestamp(&mgp_json::quote(moment)), "{moment}");
        }
    }

    /// A schema as deep as it likes is walked no deeper than any that is taken.
    #[test]
    fn a_deep_schema_is_walked_to_a_bound() {
        let deep = format!(
            "{}{}{}",
            r#"{"not":"#.repeat(100),
            r#"{"required":null}"#,
            "}".repeat(100)
        );
        let raw = format!(r#"{{"name":"t","inputSchema":{deep}}}"#);
        let (text, _) = one(ListKind::Tools, &raw);
        assert!(text.contains("required"), "{text}");
    }
}
