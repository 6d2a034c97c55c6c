//! The members of a definition that the kernel reads.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mgp_json::lookalike::find_lookalike;
use mgp_json::{Splice, members, quote, unique_member, unquote};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{BadItem, DEFINITION_MAX};

/// Members of definitions that the kernel or agents give a meaning to.
const KNOWN_MEMBERS: [&str; 14] = [
    "name",
    "title",
    "description",
    "icons",
    "inputSchema",
    "outputSchema",
    "annotations",
    "execution",
    "arguments",
    "uri",
    "uriTemplate",
    "mimeType",
    "security",
    "_meta",
];

/// One of what a prompt takes.
#[derive(Deserialize)]
pub(in crate::tools::catalog) struct PromptArgument {
    pub(in crate::tools::catalog) name: String,
    #[serde(default)]
    pub(in crate::tools::catalog) required: bool,
}

/// The members of a definition.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// What a definition is known by, decoded and as it stands in the text.
pub(super) struct ItemName<'a> {
    pub(super) text: String,
    pub(super) json: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn parse(raw: &'a str) -> Result<Self, BadItem> {
        if raw.len() > DEFINITION_MAX {
            return Err(BadItem::TooLarge(raw.len()));
        }
        let fields = Self(members(raw).ok_or(BadItem::NotAnObject)?);
        let alike = |(name, _): &(Cow<'_, str>, _)| {
            Some((name.to_string(), find_lookalike(name, &KNOWN_MEMBERS)?))
        };
        if let Some((member, known)) = fields.0.iter().find_map(alike) {
            return Err(BadItem::Lookalike(member, known));
        }
        fields.array_value("icons")?;
        Ok(fields)
    }

    /// What stands under a name; more than once in a definition that readers understand each otherwise.
    fn values(&self, member: &'static str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(name, _)| name == member);
        found.map(|(_, json)| json.get())
    }

    /// A member that is an array, where it is there.
    fn array_value(&self, member: &'static str) -> Result<Option<&'a str>, BadItem> {
        if self.values(member).all(|json| json.starts_with('[')) {
            Ok(self.values(member).last())
        } else {
            Err(BadItem::NotAnArray(member))
        }
    }

    /// What is known by a URI has a name for people, too.
    pub(super) fn check_titled(&self) -> Result<(), BadItem> {
        let mut names = self.values("name").peekable();
        let there = names.peek().is_some() && names.all(|json| json.starts_with('"'));
        there.then_some(()).ok_or(BadItem::MissingName("name"))
    }

    /// The arguments of a prompt that it cannot do without.
    pub(super) fn required_arguments(&self) -> Result<Box<[Box<str>]>, BadItem> {
        let listed = self.array_value("arguments")?.unwrap_or("[]");
        let listed: Vec<PromptArgument> =
            serde_json::from_str(listed).map_err(|e| BadItem::InvalidArguments(e.to_string()))?;
        let required = listed.into_iter().filter(|argument| argument.required);
        Ok(required.map(|argument| argument.name.into()).collect())
    }

    pub(super) fn own_name(
        &self,
        member: &'static str,
        max: usize,
    ) -> Result<ItemName<'a>, BadItem> {
        let json = unique_member(&self.0, member).ok_or(BadItem::MissingName(member))?;
        let text = unquote(json)
            .ok_or(BadItem::MissingName(member))?
            .into_owned();
        if text.is_empty() || text.len() > max {
            return Err(BadItem::NameLength(member, max));
        }
        Ok(ItemName { text, json })
    }

    pub(super) fn schema(&self, member: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(name, _)| name == member);
        found
            .map(|(_, json)| json.get())
            .filter(|json| *json != "null")
    }
}

impl ItemName<'_> {
    pub(super) fn replace_in(&self, raw: &str, to: &str) -> Arc<str> {
        let mut splice = Splice::new(raw);
        splice.replace(self.json, quote(to));
        splice.finish().into()
    }
}

/// Where a part of a definition stands in it. Definitions are shorter than [`DEFINITION_MAX`].
pub(in crate::tools::catalog) fn range_in(raw: &str, part: &str) -> Range<u32> {
    let start = part.as_ptr().addr() - raw.as_ptr().addr();
    let at = |place: usize| u32::try_from(place).expect("a definition is short");
    at(start)..at(start + part.len())
}
