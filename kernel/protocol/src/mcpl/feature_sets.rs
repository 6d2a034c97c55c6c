//! `featureSets/*`: which parts of a server are in use (MCPL §6, appendix B.2).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lookalike;
use crate::splice::{member, members};

super::methods! {
    "featureSets/update" => Update,
    "featureSets/changed" => Changed<'_>,
}

/// Sets of one server. A person decides about each; more are not there.
pub const SETS_MAX: usize = 256;
/// Bytes of a set's name.
pub const NAME_MAX: usize = 128;
/// Bytes of a description that are kept, to be shown to a person.
pub const DESCRIPTION_MAX: usize = 1024;
/// Rejected sets of one declaration that are told one by one.
pub const REJECTED_MAX: usize = 32;

/// What a set may use: the values of `uses` (MCPL §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    /// `push/event`.
    #[serde(rename = "pushEvents")]
    PushEvents,
    /// `context/beforeInference`.
    #[serde(rename = "contextHooks.beforeInference")]
    BeforeInference,
    /// `context/afterInference`.
    #[serde(rename = "contextHooks.afterInference")]
    AfterInference,
    /// `inference/request`.
    #[serde(rename = "inferenceRequest")]
    InferenceRequest,
    /// Tools.
    #[serde(rename = "tools")]
    Tools,
    /// `channels/publish`.
    #[serde(rename = "channels.publish")]
    ChannelsPublish,
    /// `channels/incoming`, `channels/outgoing/*`.
    #[serde(rename = "channels.observe")]
    ChannelsObserve,
}

impl Capability {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::PushEvents,
        Self::BeforeInference,
        Self::AfterInference,
        Self::InferenceRequest,
        Self::Tools,
        Self::ChannelsPublish,
        Self::ChannelsObserve,
    ];

    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PushEvents => "pushEvents",
            Self::BeforeInference => "contextHooks.beforeInference",
            Self::AfterInference => "contextHooks.afterInference",
            Self::InferenceRequest => "inferenceRequest",
            Self::Tools => "tools",
            Self::ChannelsPublish => "channels.publish",
            Self::ChannelsObserve => "channels.observe",
        }
    }

    /// The value of that name, in exactly this spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set as its server declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSet {
    /// What it is for, in the server's words.
    pub description: String,
    /// What it uses.
    pub uses: BTreeSet<Capability>,
    /// Its actions need a scope (MCPL §7.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scoped: bool,
    /// Its state can be rolled back (MCPL §8.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// The sets of one declaration: those that can be taken, and why the others are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredSets {
    /// By name.
    pub sets: BTreeMap<String, FeatureSet>,
    /// What was left out and why, in words for the server's log; at most [`REJECTED_MAX`] lines.
    pub rejected: Vec<String>,
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    description: Cow<'a, str>,
    #[serde(borrow)]
    uses: Vec<Cow<'a, str>>,
    #[serde(default)]
    scoped: bool,
    #[serde(default)]
    rollback: bool,
}

impl DeclaredSets {
    /// Reads an object of sets. One that cannot be taken takes no other one away (MCPL-034, MCPL-035).
    #[must_use]
    pub fn read(object: &str) -> Self {
        let mut read = Self::default();
        let Some(all) = members(object) else {
            read.reject(|| "`featureSets` is no object".to_owned());
            return read;
        };
        let mut seen = BTreeSet::new();
        for (name, value) in all {
            let shown = || name.chars().take(NAME_MAX).collect::<String>();
            if !seen.insert(name.clone()) {
                // A reader may take either: neither is taken.
                read.sets.remove(name.as_ref());
                read.reject(|| format!("feature set {:?} is declared twice", shown()));
            } else if !is_name(&name) {
                read.reject(|| format!("{:?} is no name of a feature set", shown()));
            } else if read.sets.len() >= SETS_MAX {
                read.reject(|| format!("feature set {name} is one too many: {SETS_MAX} are taken"));
            } else {
                match written(value) {
                    Ok(set) => drop(read.sets.insert(name.into_owned(), set)),
                    Err(why) => read.reject(|| format!("feature set {name} is left out: {why}")),
                }
            }
        }
        read
    }

    fn reject(&mut self, why: impl FnOnce() -> String) {
        match self.rejected.len() {
            0..REJECTED_MAX => self.rejected.push(why()),
            REJECTED_MAX => self.rejected.push("and more that are left out".to_owned()),
            _ => {}
        }
    }
}

fn written(value: &RawValue) -> Result<FeatureSet, String> {
    let read: Written<'_> =
        lookalike::from_str(value.get()).map_err(|error| lookalike::plain(&error))?;
    let uses = read.uses.iter().map(|word| {
        Capability::parse(word).ok_or_else(|| {
            let word: String = word.chars().take(NAME_MAX).collect();
            format!("`uses` knows no {word:?}")
        })
    });
    let mut description = read.description.into_owned();
    let end = (0..=DESCRIPTION_MAX.min(description.len()))
        .rev()
        .find(|at| description.is_char_boundary(*at));
    description.truncate(end.unwrap_or_default());
    Ok(FeatureSet {
        description,
        uses: uses.collect::<Result<_, _>>()?,
        scoped: read.scoped,
        rollback: read.rollback,
    })
}

/// Whether a set can have this name: words of printable ASCII with dots between them, and nothing that stands
/// for several names or none (MCPL §6.3).
#[must_use]
pub fn is_name(name: &str) -> bool {
    let sign = |b: u8| b.is_ascii_graphic() && !matches!(b, b'*' | b'"' | b'\\' | b',');
    let word = |word: &str| !word.is_empty() && word.bytes().all(sign);
    name.len() <= NAME_MAX && name.split('.').all(word)
}

/// What the patterns of a scoped set let through (MCPL §7.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePatterns {
    /// These labels are approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whitelist: Vec<String>,
    /// These are denied, whatever else is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blacklist: Vec<String>,
}

impl ScopePatterns {
    /// Nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whitelist.is_empty() && self.blacklist.is_empty()
    }
}

/// `featureSets/update`: the host says which sets are enabled (MCPL §5.3, §6.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// From now on enabled.
    #[serde(default)]
    pub enabled: Vec<String>,
    /// From now on not.
    #[serde(default)]
    pub disabled: Vec<String>,
    /// Of scoped sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes: BTreeMap<String, ScopePatterns>,
}

/// `featureSets/changed`: a server declares other sets than before (MCPL §6.7).
#[derive(Debug, Deserialize)]
pub struct Changed<'a> {
    /// New ones, as an object like that of the declaration.
    #[serde(borrow, default)]
    pub added: Option<&'a RawValue>,
    /// Names of those that are no more.
    #[serde(borrow, default)]
    pub removed: Vec<Cow<'a, str>>,
}

/// The set that the definition of a tool names in `_meta.featureSet` (MCPL §6).
#[must_use]
pub fn set_of_definition(definition: &str) -> Option<String> {
    let named = member(definition, "_meta").and_then(|meta| member(meta, "featureSet"));
    named.and_then(|set| serde_json::from_str(set).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-033, MCPL-046, MCPL-062, MCPL-138: the examples of §6.1, §7.1 and §8.1 are taken whole.
    #[test]
    fn the_examples_of_the_document_are_taken() {
        let read = DeclaredSets::read(
            r#"{"memory.retrieval":{"description":"Retrieve relevant memories before inference","uses":["contextHooks.beforeInference"]},
                "files.edit":{"description":"Edit files on the filesystem","uses":["tools"],"scoped":true},
                "notes.edit":{"description":"Manage notes","uses":["tools"],"rollback":true,"x-more":[1]}}"#,
        );
        assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        assert!(read.sets["files.edit"].scoped && !read.sets["files.edit"].rollback);
        assert!(read.sets["notes.edit"].rollback);
        let uses: Vec<_> = read.sets["memory.retrieval"].uses.iter().copied().collect();
        assert_eq!(uses, [Capability::BeforeInference]);
    }

    /// MCPL-034, MCPL-035: what cannot be taken is told, and takes no other one away.
    #[test]
    fn a_broken_set_is_left_out_alone() {
        let read = DeclaredSets::read(
            r#"{"good":{"description":"d","uses":["tools"]},"no.uses":{"description":"d"},
                "no.description":{"uses":["tools"]},"odd.uses":{"description":"d","uses":["everything"]},
                "text.uses":{"description":"d","uses":"tools"},"odd.scoped":{"description":"d","uses":[],"scoped":"yes"},
                "case":{"description":"d","uses":["PushEvents"]},"all.*":{"description":"d","uses":["tools"]},
                "":{"description":"d","uses":[]},"a..b":{"description":"d","uses":[]},"n\u0000l":{"description":"d","uses":[]},
                "memory\u200b":{"description":"d","uses":[]},"no":null,"list":[["tools"]],
                "alike":{"description":"d","uses":["tools"],"USES":["pushEvents"]},
                "twice":{"description":"d","uses":["tools"]},"twice":{"description":"d","uses":["pushEvents"]}}"#,
        );
        let names: Vec<_> = read.sets.keys().map(String::as_str).collect();
        assert_eq!(names, ["good"]);
        assert_eq!(read.rejected.len(), 15, "{:#?}", read.rejected);
        assert!(DeclaredSets::read("[]").rejected[0].contains("no object"));
    }

    /// A million sets make no more than the bound, and few lines.
    #[test]
    fn sets_are_bounded() {
        let one = |n: usize| format!(r#""s{n}":{{"description":"d","uses":[]}}"#);
        let all: Vec<String> = (0..20_000).map(one).collect();
        let read = DeclaredSets::read(&format!("{{{}}}", all.join(",")));
        assert_eq!(read.sets.len(), SETS_MAX);
        assert_eq!(read.rejected.len(), REJECTED_MAX + 1);
        let long = format!(
            r#"{{"a":{{"description":"{}","uses":[]}}}}"#,
            "ä".repeat(5000)
        );
        assert_eq!(
            DeclaredSets::read(&long).sets["a"].description.len(),
            DESCRIPTION_MAX
        );
        let name = "a".repeat(NAME_MAX + 1);
        assert!(!is_name(&name) && is_name(&name[1..]));
    }

    /// MCPL-035: each value of the document, in its spelling alone.
    #[test]
    fn what_a_set_uses_is_a_word_of_the_document() {
        for one in Capability::ALL {
            assert_eq!(Capability::parse(one.as_str()), Some(one));
            assert_eq!(Capability::parse(&one.as_str().to_uppercase()), None);
            assert_eq!(serde_json::to_string(&one).unwrap(), format!("\"{one}\""));
        }
    }
}
