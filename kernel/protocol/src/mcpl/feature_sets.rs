//! `featureSets/*`: the feature sets of a server (MCPL §6, appendix B.2).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mgp_json::{lookalike, member, members};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::McplVersion;

super::methods! {
    "featureSets/update" => Update,
    "featureSets/changed" => Changed<'_>,
}

/// The most sets of one server. A person decides about each.
pub const SETS_MAX: usize = 256;
/// The most bytes of a set's name.
pub(crate) const NAME_MAX: usize = 128;
/// The most bytes of a description that are stored, for showing it to a person.
pub(crate) const DESCRIPTION_MAX: usize = 1024;
/// The most rejected sets of one declaration that are reported individually.
pub(crate) const REJECTED_MAX: usize = 32;
/// The most unknown uses of one set that are reported individually.
const UNKNOWN_MAX: usize = 8;

/// A feature that a set may use: the values of `uses` (MCPL §6.2), in 0.5 the leaves of the capability paths.
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
    /// `model/info`.
    #[serde(rename = "modelInfo")]
    ModelInfo,
    /// `inference/chunk`.
    #[serde(rename = "inferenceRequest.streaming")]
    InferenceStreaming,
    /// `inference/lifecycle`.
    #[serde(rename = "inferenceLifecycle")]
    InferenceLifecycle,
    /// The user's message in `context/beforeInference`.
    #[serde(rename = "contextHooks.beforeInference.observe")]
    BeforeObserve,
    /// Additions to the system instructions.
    #[serde(rename = "contextHooks.beforeInference.inject.system")]
    InjectSystem,
    /// Additions before the user's message.
    #[serde(rename = "contextHooks.beforeInference.inject.beforeUser")]
    InjectBeforeUser,
    /// Additions after the user's message.
    #[serde(rename = "contextHooks.beforeInference.inject.afterUser")]
    InjectAfterUser,
    /// `channels/register`, `channels/changed`, `channels/list`.
    #[serde(rename = "channels.register")]
    ChannelsRegister,
    /// `channels/open`, `channels/close`.
    #[serde(rename = "channels.lifecycle")]
    ChannelsLifecycle,
    /// `channels/incoming`.
    #[serde(rename = "channels.incoming")]
    ChannelsIncoming,
    /// `channels/outgoing/*`.
    #[serde(rename = "channels.streaming")]
    ChannelsStreaming,
    /// `channels/acknowledge`.
    #[serde(rename = "channels.acknowledge")]
    ChannelsAcknowledge,
    /// `channels/typing`.
    #[serde(rename = "channels.typing")]
    ChannelsTyping,
}

impl Capability {
    /// The capabilities of 0.4.
    pub const IN_0_4: [Self; 7] = [
        Self::PushEvents,
        Self::BeforeInference,
        Self::AfterInference,
        Self::InferenceRequest,
        Self::Tools,
        Self::ChannelsPublish,
        Self::ChannelsObserve,
    ];
    /// The capability paths of 0.5 (§6.2).
    pub const IN_0_5: [Self; 17] = [
        Self::PushEvents,
        Self::Tools,
        Self::ModelInfo,
        Self::InferenceRequest,
        Self::InferenceStreaming,
        Self::InferenceLifecycle,
        Self::BeforeObserve,
        Self::InjectSystem,
        Self::InjectBeforeUser,
        Self::InjectAfterUser,
        Self::ChannelsRegister,
        Self::ChannelsLifecycle,
        Self::ChannelsPublish,
        Self::ChannelsIncoming,
        Self::ChannelsStreaming,
        Self::ChannelsAcknowledge,
        Self::ChannelsTyping,
    ];

    /// The capabilities of a version.
    #[must_use]
    pub const fn all(version: McplVersion) -> &'static [Self] {
        match version {
            McplVersion::V0_4 => &Self::IN_0_4,
            McplVersion::V0_5 => &Self::IN_0_5,
        }
    }

    /// True if a set that uses `used` uses this: 0.4 has one word for what 0.5 has several for.
    #[must_use]
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other word has the same meaning in both versions"
    )]
    pub fn is_part_of(self, used: Self) -> bool {
        let covers = match used {
            Self::BeforeInference => matches!(
                self,
                Self::BeforeObserve
                    | Self::InjectSystem
                    | Self::InjectBeforeUser
                    | Self::InjectAfterUser
            ),
            // Whoever has one of these takes part in the hook.
            Self::BeforeObserve
            | Self::InjectSystem
            | Self::InjectBeforeUser
            | Self::InjectAfterUser => self == Self::BeforeInference,
            Self::ChannelsObserve => {
                matches!(self, Self::ChannelsIncoming | Self::ChannelsStreaming)
            }
            _ => false,
        };
        covers || self == used
    }

    /// The value on the wire.
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
            Self::ModelInfo => "modelInfo",
            Self::InferenceStreaming => "inferenceRequest.streaming",
            Self::InferenceLifecycle => "inferenceLifecycle",
            Self::BeforeObserve => "contextHooks.beforeInference.observe",
            Self::InjectSystem => "contextHooks.beforeInference.inject.system",
            Self::InjectBeforeUser => "contextHooks.beforeInference.inject.beforeUser",
            Self::InjectAfterUser => "contextHooks.beforeInference.inject.afterUser",
            Self::ChannelsRegister => "channels.register",
            Self::ChannelsLifecycle => "channels.lifecycle",
            Self::ChannelsIncoming => "channels.incoming",
            Self::ChannelsStreaming => "channels.streaming",
            Self::ChannelsAcknowledge => "channels.acknowledge",
            Self::ChannelsTyping => "channels.typing",
        }
    }

    /// Parses the value in exactly this spelling, as a word of this version.
    #[must_use]
    pub fn parse(text: &str, version: McplVersion) -> Option<Self> {
        let mut all = Self::all(version).iter().copied();
        all.find(|one| one.as_str() == text)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set as declared by its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSet {
    /// Its purpose, as described by the server.
    pub description: String,
    /// The features it uses.
    pub uses: BTreeSet<Capability>,
    /// True if its actions need a scope (MCPL §7.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scoped: bool,
    /// True if its state can be rolled back (MCPL §8.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// The sets of one declaration: the valid ones, and why the others are rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredSets {
    /// The version whose words `uses` has.
    version: McplVersion,
    /// By name.
    pub sets: BTreeMap<String, FeatureSet>,
    /// The rejected sets with reasons, for the server's log; at most [`REJECTED_MAX`] lines.
    pub rejected: Vec<String>,
}

#[derive(Deserialize)]
struct RawFeatureSet<'a> {
    #[serde(borrow)]
    description: Cow<'a, str>,
    #[serde(borrow)]
    uses: Vec<Cow<'a, str>>,
    #[serde(default)]
    scoped: bool,
    #[serde(default)]
    rollback: bool,
}

/// A set in an array of sets.
#[derive(Deserialize)]
struct RawListedSet<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    description: Cow<'a, str>,
    #[serde(borrow, default)]
    uses: Vec<Cow<'a, str>>,
    #[serde(default)]
    scoped: bool,
    #[serde(default)]
    rollback: bool,
}

impl DeclaredSets {
    /// Parses an object of sets, or an array of sets that each have a `name`. An invalid set does not
    /// affect the others (MCPL-034, MCPL-035).
    #[must_use]
    pub fn parse(declared: &str) -> Self {
        Self::parse_version(declared, McplVersion::V0_4)
    }

    /// As [`Self::parse`], with the words of this version. In 0.5 a set with an unknown use is invalid as a whole
    /// (§6.4), and sets have no scopes.
    #[must_use]
    pub fn parse_version(declared: &str, version: McplVersion) -> Self {
        let mut read = Self {
            version,
            ..Self::default()
        };
        let mut seen = BTreeSet::new();
        if declared.starts_with('[') {
            let all: Vec<&RawValue> = serde_json::from_str(declared).unwrap_or_default();
            for value in all {
                match lookalike::from_str::<RawListedSet<'_>>(value.get()) {
                    Ok(set) => {
                        let name = set.name.clone();
                        read.insert(name, Ok(set.into()), &mut seen);
                    }
                    Err(why) => read.reject(|| {
                        let why = lookalike::strip_position(&why);
                        format!("a feature set in the array is left out: {why}")
                    }),
                }
            }
            return read;
        }
        let Some(all) = members(declared) else {
            read.reject(|| "`featureSets` is neither an object nor an array".to_owned());
            return read;
        };
        for (name, value) in all {
            let set =
                lookalike::from_str(value.get()).map_err(|error| lookalike::strip_position(&error));
            read.insert(name, set, &mut seen);
        }
        read
    }

    fn insert<'a>(
        &mut self,
        name: Cow<'a, str>,
        set: Result<RawFeatureSet<'_>, String>,
        seen: &mut BTreeSet<Cow<'a, str>>,
    ) {
        let shown = || name.chars().take(NAME_MAX).collect::<String>();
        if !seen.insert(name.clone()) {
            // A parser may read either of two duplicates: both are rejected.
            self.sets.remove(name.as_ref());
            self.reject(|| format!("feature set {:?} is declared twice", shown()));
        } else if !is_valid_name(&name) {
            self.reject(|| format!("{:?} is no name of a feature set", shown()));
        } else if self.sets.len() >= SETS_MAX {
            self.reject(|| format!("feature set {name} is one too many: {SETS_MAX} are taken"));
        } else {
            match set.and_then(|set| self.check_feature_set(&name, set)) {
                Ok(set) => drop(self.sets.insert(name.into_owned(), set)),
                Err(why) => self.reject(|| format!("feature set {name} is left out: {why}")),
            }
        }
    }

    /// The set without unknown uses, which are reported. A set without other uses is rejected.
    fn check_feature_set(
        &mut self,
        name: &str,
        read: RawFeatureSet<'_>,
    ) -> Result<FeatureSet, String> {
        let mut uses = BTreeSet::new();
        let mut unknown = Vec::new();
        for word in &read.uses {
            match Capability::parse(word, self.version) {
                Some(known) => drop(uses.insert(known)),
                None => {
                    let word: String = word.chars().take(NAME_MAX).collect();
                    unknown.push(format!("{word:?}"));
                }
            }
        }
        let is_strict = self.version == McplVersion::V0_5;
        if is_strict && read.uses.is_empty() {
            return Err("invalid_uses: `uses` is empty".to_owned());
        }
        if !unknown.is_empty() {
            unknown.truncate(UNKNOWN_MAX);
            let unknown = unknown.join(", ");
            if is_strict {
                return Err(format!("invalid_uses: MCPL 0.5 has no {unknown}"));
            }
            if uses.is_empty() {
                return Err(format!("`uses` knows no {unknown}"));
            }
            self.reject(|| {
                format!("feature set {name} is taken without {unknown}, which `uses` does not know")
            });
        }
        let mut description = read.description.into_owned();
        let end = (0..=DESCRIPTION_MAX.min(description.len()))
            .rev()
            .find(|at| description.is_char_boundary(*at));
        description.truncate(end.unwrap_or_default());
        Ok(FeatureSet {
            description,
            uses,
            scoped: read.scoped && !is_strict,
            rollback: read.rollback,
        })
    }

    fn reject(&mut self, why: impl FnOnce() -> String) {
        match self.rejected.len() {
            0..REJECTED_MAX => self.rejected.push(why()),
            REJECTED_MAX => self.rejected.push("and more that are left out".to_owned()),
            _ => {}
        }
    }
}

impl<'a> From<RawListedSet<'a>> for RawFeatureSet<'a> {
    fn from(set: RawListedSet<'a>) -> Self {
        Self {
            description: set.description,
            uses: set.uses,
            scoped: set.scoped,
            rollback: set.rollback,
        }
    }
}

/// True for a valid name: words of printable ASCII separated by dots, without wildcards or empty parts
/// (MCPL §6.3).
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let sign = |b: u8| b.is_ascii_graphic() && !matches!(b, b'*' | b'"' | b'\\' | b',');
    let word = |word: &str| !word.is_empty() && word.bytes().all(sign);
    name.len() <= NAME_MAX && name.split('.').all(word)
}

/// The patterns of a scoped set (MCPL §7.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePatterns {
    /// Approved labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whitelist: Vec<String>,
    /// Denied labels, with precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blacklist: Vec<String>,
}

impl ScopePatterns {
    /// True without patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whitelist.is_empty() && self.blacklist.is_empty()
    }
}

/// `featureSets/update`: the host's enabled sets (MCPL §5.3, §6.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// Newly enabled sets.
    #[serde(default)]
    pub enabled: Vec<String>,
    /// Newly disabled sets.
    #[serde(default)]
    pub disabled: Vec<String>,
    /// The patterns of scoped sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes: BTreeMap<String, ScopePatterns>,
}

impl Update {
    /// Parses a host's update. A notification has no answer, so each member is accepted or rejected by
    /// itself. Malformed patterns close their set.
    #[must_use]
    pub fn parse(params: &str) -> (Self, Vec<String>) {
        let mut update = Self::default();
        let mut refused = Vec::new();
        let Some(all) = members(params) else {
            return (update, vec!["the params are no object".to_owned()]);
        };
        for (name, value) in all {
            if name == "enabled" {
                update
                    .enabled
                    .extend(parse_names(&name, value, &mut refused));
            } else if name == "disabled" {
                update
                    .disabled
                    .extend(parse_names(&name, value, &mut refused));
            } else if name == "scopes" {
                let Some(scopes) = members(value.get()) else {
                    refused.push("`scopes` is no object".to_owned());
                    continue;
                };
                for (set, patterns) in scopes {
                    let patterns = parse_patterns(patterns, &mut refused);
                    update.scopes.insert(set.into_owned(), patterns);
                }
            }
        }
        refused.truncate(REJECTED_MAX);
        (update, refused)
    }
}

/// The names in an array; others are rejected.
fn parse_names(member: &str, value: &RawValue, refused: &mut Vec<String>) -> Vec<String> {
    let Ok(all) = serde_json::from_str::<Vec<&RawValue>>(value.get()) else {
        refused.push(format!("`{member}` is no array"));
        return Vec::new();
    };
    let named = all.into_iter().filter_map(|one| {
        let name = serde_json::from_str::<String>(one.get());
        if name.is_err() && refused.len() < REJECTED_MAX {
            let shown: String = one.get().chars().take(64).collect();
            refused.push(format!("`{member}` holds {shown}, which is no name"));
        }
        name.ok()
    });
    named.collect()
}

fn parse_patterns(patterns: &RawValue, refused: &mut Vec<String>) -> ScopePatterns {
    let read: Result<ScopePatterns, _> = lookalike::from_str(patterns.get());
    read.unwrap_or_else(|_| {
        if refused.len() < REJECTED_MAX {
            refused.push("the patterns of a set cannot be read, and close it".to_owned());
        }
        ScopePatterns {
            whitelist: Vec::new(),
            blacklist: vec!["**".to_owned()],
        }
    })
}

/// `featureSets/changed`: a server's declaration changed (MCPL §6.7).
#[derive(Debug, Deserialize)]
pub struct Changed<'a> {
    /// New sets, as an object like that of the declaration.
    #[serde(borrow, default)]
    pub added: Option<&'a RawValue>,
    /// The names of removed sets.
    #[serde(borrow, default)]
    pub removed: Vec<Cow<'a, str>>,
}

/// The set of a tool, from `_meta.featureSet` of its definition (MCPL §6).
#[must_use]
pub fn tool_feature_set(definition: &str) -> Option<String> {
    let named = member(definition, "_meta").and_then(|meta| member(meta, "featureSet"));
    named.and_then(|set| serde_json::from_str(set).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-033, MCPL-046, MCPL-062, MCPL-138: the examples of §6.1, §7.1 and §8.1 are accepted.
    #[test]
    fn examples_of_the_document_are_accepted() {
        let read = DeclaredSets::parse(
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

    /// MCPL-034, MCPL-035: an invalid set is reported, and does not affect others.
    #[test]
    fn invalid_set_does_not_affect_others() {
        let read = DeclaredSets::parse(
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
        assert!(DeclaredSets::parse("7").rejected[0].contains("neither an object"));
    }

    /// The form of programs on mcpl-core: an array, each set with its name, some with more members than the
    /// document.
    #[test]
    fn sets_in_an_array_are_accepted_by_name() {
        let read = DeclaredSets::parse(
            r#"[{"name":"heartbeat","description":"d","uses":["pushEvents"],"rollback":false,"hostState":false},
                {"name":"bare","uses":["tools"]},{"name":"twice","uses":["tools"]},{"name":"twice","uses":["pushEvents"]},
                {"description":"d","uses":["tools"]},["x","d",["tools"]],7,{"name":"a..b","uses":[]}]"#,
        );
        let names: Vec<_> = read.sets.keys().map(String::as_str).collect();
        assert_eq!(names, ["bare", "heartbeat"]);
        assert_eq!(read.rejected.len(), 5, "{:#?}", read.rejected);
        assert_eq!(DeclaredSets::parse("[]"), DeclaredSets::default());
    }

    #[test]
    fn invalid_member_of_an_update_does_not_affect_others() {
        let (update, refused) = Update::parse(
            r#"{"enabled":[5,"a"],"disabled":["b",7,null],"scopes":{"c":{"whitelist":["x"]},"d":{"whitelist":7}},"more":1}"#,
        );
        assert_eq!(update.enabled, ["a"]);
        assert_eq!(update.disabled, ["b"]);
        assert_eq!(update.scopes["c"].whitelist, ["x"]);
        assert_eq!(update.scopes["d"].blacklist, ["**"]);
        assert_eq!(refused.len(), 4, "{refused:?}");
        let (update, refused) = Update::parse(r#"{"disabled":"a","enabled":{}}"#);
        assert_eq!(update, Update::default());
        assert_eq!(refused, ["`disabled` is no array", "`enabled` is no array"]);
        assert_eq!(Update::parse("[]").1, ["the params are no object"]);
    }

    #[test]
    fn unknown_use_is_dropped_and_reported() {
        let read = DeclaredSets::parse(
            r#"{"editor.observe":{"description":"d","uses":["pushEvents","stateUpdate"]},
                "editor.branches":{"description":"d","uses":["branches"]}}"#,
        );
        assert_eq!(
            Vec::from_iter(&read.sets["editor.observe"].uses),
            [&Capability::PushEvents]
        );
        assert_eq!(read.sets.len(), 1);
        let rejected = read.rejected.join("\n");
        assert!(rejected.contains("without \"stateUpdate\""), "{rejected}");
        assert!(
            rejected.contains("editor.branches is left out"),
            "{rejected}"
        );
    }

    /// NEW-004: a set of 0.5 whose `uses` is absent, empty or has a word that 0.5 does not have is left out whole; the
    /// words of 0.4 are no words of 0.5.
    #[test]
    fn set_of_0_5_with_invalid_uses_is_left_out_whole() {
        let read = DeclaredSets::parse_version(
            r#"{"good":{"description":"d","uses":["channels.incoming","tools"],"scoped":true},
                "none":{"description":"d"},"empty":{"description":"d","uses":[]},
                "some":{"description":"d","uses":["tools","everything"]},
                "parent":{"description":"d","uses":["contextHooks.beforeInference"]},
                "removed":{"description":"d","uses":["contextHooks.afterInference"]},
                "older":{"description":"d","uses":["channels.observe"]}}"#,
            McplVersion::V0_5,
        );
        let names: Vec<_> = read.sets.keys().map(String::as_str).collect();
        assert_eq!(names, ["good"]);
        assert!(!read.sets["good"].scoped, "0.5 has no scopes");
        assert_eq!(read.rejected.len(), 6, "{:#?}", read.rejected);
        let rejected = read.rejected.join("\n");
        assert_eq!(rejected.matches("invalid_uses").count(), 5, "{rejected}");
        let older =
            DeclaredSets::parse(r#"{"a":{"description":"d","uses":["channels.incoming"]}}"#);
        assert!(older.sets.is_empty(), "0.4 does not have the words of 0.5");
    }

    /// A million sets are cut at the limit, with few lines.
    #[test]
    fn sets_are_bounded() {
        let one = |n: usize| format!(r#""s{n}":{{"description":"d","uses":[]}}"#);
        let all: Vec<String> = (0..20_000).map(one).collect();
        let read = DeclaredSets::parse(&format!("{{{}}}", all.join(",")));
        assert_eq!(read.sets.len(), SETS_MAX);
        assert_eq!(read.rejected.len(), REJECTED_MAX + 1);
        let long = format!(
            r#"{{"a":{{"description":"{}","uses":[]}}}}"#,
            "ä".repeat(5000)
        );
        assert_eq!(
            DeclaredSets::parse(&long).sets["a"].description.len(),
            DESCRIPTION_MAX
        );
        let name = "a".repeat(NAME_MAX + 1);
        assert!(!is_valid_name(&name) && is_valid_name(&name[1..]));
    }

    /// MCPL-035: each value of the document, in its exact spelling.
    #[test]
    fn uses_have_the_spelling_of_the_document() {
        for version in [McplVersion::V0_4, McplVersion::V0_5] {
            for one in Capability::all(version) {
                let parse = |text: &str| Capability::parse(text, version);
                assert_eq!(parse(one.as_str()), Some(*one));
                assert_eq!(parse(&one.as_str().to_uppercase()), None);
                assert_eq!(serde_json::to_string(one).unwrap(), format!("\"{one}\""));
            }
        }
    }
}
