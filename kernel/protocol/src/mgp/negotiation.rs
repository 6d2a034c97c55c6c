//! Negotiates the MGP features that two peers have in common (MGP §2): only these are used between them.
//!
//! There are three places for the declaration: `capabilities.mgp`, the same below `experimental` for SDKs
//! that allow nothing else, and the extension [`EXTENSION`], the only place of the stateless protocol and
//! of its SDKs in a legacy session. Later drafts split some extensions of 0.2 and gave the parts names of
//! their own; both vocabularies are supported, and a peer is answered in the one it used.

use std::borrow::Cow;
use std::fmt;
use std::ops::{BitAnd, BitOr};

use mgp_json::{Splice, can_contain_string, member, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::dialect::ProtocolFamily;
use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND};

/// A key of `capabilities.extensions`, where both protocols may carry the declaration.
pub(crate) const EXTENSION: &str = "dev.cloto/mgp";
/// The most names read from a list in a declaration, which bounds the stored data; further ones are
/// ignored.
pub(crate) const NAMES_MAX: usize = 64;
/// The longest name in a declaration, in bytes; a longer one is ignored.
pub(crate) const NAME_MAX: usize = 256;

/// A version of MGP. Suffixes such as `-draft` are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MgpVersion {
    /// Must match (§2.4).
    pub(crate) major: u32,
    /// Backward compatible (§2.4), and never a reason to reject.
    pub(crate) minor: u32,
    /// Has no effect.
    pub patch: u32,
}

impl MgpVersion {
    /// The version this kernel announces where it speaks first.
    pub(crate) const OURS: Self = Self::new(0, 2, 0);
    /// The newest version that is spoken with a peer that announces it.
    pub(crate) const NEWEST: Self = Self::new(0, 7, 0);

    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// The kernel's version for a peer of this one.
    fn counterpart(self) -> Self {
        if self.minor > Self::OURS.minor {
            self.min(Self::NEWEST)
        } else {
            Self::OURS
        }
    }

    /// True if there are four trust levels: `core`, `standard`, `experimental` and `untrusted` (0.6.0, §2.3).
    pub(crate) fn has_four_trust_levels(self) -> bool {
        self >= Self::new(0, 6, 0)
    }

    /// True if a call that policy refuses is answered with a tool rejection (0.6.1, §14.7).
    pub(crate) fn has_tool_rejections(self) -> bool {
        self >= Self::new(0, 6, 1)
    }

    /// Parses `1.2.3`, with or without a suffix.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let core = text.split(['-', '+']).next()?;
        let mut parts = core.split('.').map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            part.parse::<u32>().ok().filter(|_| digits)
        });
        let version = Self {
            major: parts.next()??,
            minor: parts.next()??,
            patch: parts.next()??,
        };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for MgpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A set of MGP features, at the finest granularity of any draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u16);

impl Features {
    /// No features.
    pub(crate) const NONE: Self = Self(0);
    /// Permission declarations and their approval (§3).
    pub const PERMISSIONS: Self = Self(1);
    /// `security` in tool definitions (§4).
    pub const TOOL_SECURITY: Self = Self(1 << 1);
    /// `mgp/access/*` (§5).
    pub const ACCESS_CONTROL: Self = Self(1 << 2);
    /// `notifications/mgp.audit` (§6).
    pub const AUDIT: Self = Self(1 << 3);
    /// Code safety declarations (§7).
    pub const CODE_SAFETY: Self = Self(1 << 4);
    /// `mgp/health/*`, `mgp/lifecycle/*` (§11).
    pub const LIFECYCLE: Self = Self(1 << 5);
    /// Chunks and their cancellation (§12).
    pub const STREAMING: Self = Self(1 << 6);
    /// Progress of streams (§12.6).
    pub const PROGRESS: Self = Self(1 << 7);
    /// Callbacks of servers (§13.4).
    pub const CALLBACKS: Self = Self(1 << 8);
    /// Event subscriptions (§13.2).
    pub const EVENTS: Self = Self(1 << 9);
    /// Advertisement and registration (§15).
    pub const DISCOVERY: Self = Self(1 << 10);
    /// Tool search and session cache (§16).
    pub const TOOL_DISCOVERY: Self = Self(1 << 11);
    /// The codes and recovery fields of §14, which are implied in 0.2.
    pub const ERROR_HANDLING: Self = Self(1 << 12);
    /// All features.
    pub const ALL: Self = Self((1 << 13) - 1);

    /// True if it contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if it contains no feature.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitAnd for Features {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The nine extensions of 0.2 (§2.2), then the names of later drafts.
const WORDS: [(&str, Features); 15] = [
    (
        "security",
        Features::PERMISSIONS.union(Features::TOOL_SECURITY),
    ),
    ("access_control", Features::ACCESS_CONTROL),
    ("audit", Features::AUDIT),
    ("code_safety", Features::CODE_SAFETY),
    ("lifecycle", Features::LIFECYCLE),
    (STREAMING, Features::STREAMING.union(Features::PROGRESS)),
    ("bidirectional", Features::CALLBACKS.union(Features::EVENTS)),
    ("discovery", Features::DISCOVERY),
    ("tool_discovery", Features::TOOL_DISCOVERY),
    ("permissions", Features::PERMISSIONS),
    ("tool_security", Features::TOOL_SECURITY),
    ("progress", Features::PROGRESS),
    ("callbacks", Features::CALLBACKS),
    ("events", Features::EVENTS),
    ("error_handling", Features::ERROR_HANDLING),
];
/// The number of [`WORDS`] that are of 0.2.
const OF_0_2: usize = 9;
/// The name with a narrower meaning if the finer names are used.
const STREAMING: &str = "streaming";

/// The position of a declaration in a capabilities object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// `mgp`.
    Plain,
    /// `experimental.mgp`.
    Experimental,
    /// `extensions["dev.cloto/mgp"]`.
    Extension,
}

impl Carrier {
    /// The path of members from the capabilities object to the declaration.
    #[must_use]
    pub const fn path(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["mgp"],
            Self::Experimental => &["experimental", "mgp"],
            Self::Extension => &["extensions", EXTENSION],
        }
    }
}

/// The declaration of a peer, unverified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The supported version.
    pub(crate) version: MgpVersion,
    /// The features of the listed names.
    pub(crate) features: Features,
    /// The known names, as written by the peer; each once.
    pub(crate) extension_names: Vec<&'static str>,
    /// Of a server: the permissions it needs, in its own spelling.
    pub permissions_required: Vec<String>,
    /// Of a server: its own id.
    pub server_id: Option<String>,
    /// Of a server: the requested trust level, as written.
    pub trust_level: Option<String>,
    /// Of a client: it wants to be notified when it may create a tool itself (later drafts, §16.6).
    pub tool_creation: bool,
    /// Its position; the answer has the same one.
    pub carrier: Carrier,
}

/// Why a declaration counts as none: the peer is used without MGP, and this is logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Not an object.
    #[error("its `mgp` capability is no object")]
    NotAnObject,
    /// `version` is missing, or no semantic version.
    #[error("its MGP version {0:?} is no semantic version")]
    NoVersion(String),
    /// `extensions` is not a list of names.
    #[error("its MGP `extensions` is no list of names")]
    NoExtensions,
    /// Another major version (§2.4).
    #[error("it speaks MGP {theirs}, this kernel {}", MgpVersion::OURS)]
    OtherMajor {
        /// The announced version.
        theirs: MgpVersion,
    },
}

#[derive(Default, Deserialize)]
struct RawPlaces<'a> {
    #[serde(borrow, default)]
    mgp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    experimental: Option<&'a RawValue>,
    #[serde(borrow, default)]
    extensions: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawNested<'a> {
    #[serde(borrow, default)]
    mgp: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.cloto/mgp")]
    extension: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawDeclaration<'a> {
    #[serde(borrow, default)]
    version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    extensions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    permissions_required: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    trust_level: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_creation: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct EnabledFlag {
    #[serde(default)]
    enabled: bool,
}

/// Parses an object as `T`; anything else counts as absent. Serde would accept an array too.
fn parse_object<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    raw.filter(|raw| raw.get().starts_with('{'))
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn parse_text(raw: Option<&RawValue>) -> Option<String> {
    let text: Cow<'_, str> = serde_json::from_str(raw?.get()).ok()?;
    (text.len() <= NAME_MAX).then(|| text.into_owned())
}

/// The strings of a list; `None` if it is no list.
fn parse_names(raw: Option<&RawValue>) -> Option<Vec<String>> {
    let Some(raw) = raw else {
        return Some(Vec::new());
    };
    let all: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let read = all.into_iter().filter_map(|raw| parse_text(Some(raw)));
    Some(read.take(NAMES_MAX).collect())
}

impl Declaration {
    /// Parses the declaration in a peer's capabilities object. Of several positions in a legacy peer's the
    /// first counts, in the order of [`Carrier`]; for a stateless peer only its extension is read.
    ///
    /// # Errors
    /// [`DeclarationError`] for an invalid declaration.
    pub fn parse(
        capabilities: Option<&RawValue>,
        era: ProtocolFamily,
    ) -> Result<Option<Self>, DeclarationError> {
        let Some(places) = parse_object::<RawPlaces<'_>>(capabilities) else {
            return Ok(None);
        };
        let below = |raw| parse_object::<RawNested<'_>>(raw).unwrap_or_default();
        let all = [
            (Carrier::Plain, places.mgp),
            (Carrier::Experimental, below(places.experimental).mgp),
            (Carrier::Extension, below(places.extensions).extension),
        ];
        let mut found = all.into_iter().filter(|(carrier, _)| match era {
            ProtocolFamily::Legacy => true,
            ProtocolFamily::Stateless => *carrier == Carrier::Extension,
        });
        match found.find_map(|(carrier, raw)| raw.map(|raw| (carrier, raw))) {
            Some((carrier, raw)) => Self::parse_carrier(carrier, raw).map(Some),
            None => Ok(None),
        }
    }

    fn parse_carrier(carrier: Carrier, raw: &RawValue) -> Result<Self, DeclarationError> {
        let declared: RawDeclaration<'_> =
            parse_object(Some(raw)).ok_or(DeclarationError::NotAnObject)?;
        let version = parse_text(declared.version).unwrap_or_default();
        let version = MgpVersion::parse(&version).ok_or(DeclarationError::NoVersion(version))?;
        if version.major != MgpVersion::OURS.major {
            return Err(DeclarationError::OtherMajor { theirs: version });
        }
        let listed = parse_names(declared.extensions).ok_or(DeclarationError::NoExtensions)?;
        let known = |name: &String| WORDS.iter().position(|(word, _)| word == name);
        let mut known: Vec<usize> = listed.iter().filter_map(known).collect();
        let mut seen = 0_u32;
        known.retain(|at| {
            let new = seen & (1 << at) == 0;
            seen |= 1 << at;
            new
        });
        let later = known.iter().any(|at| *at >= OF_0_2);
        let means = |at: &usize| match WORDS[*at] {
            // Later drafts negotiate progress separately.
            (STREAMING, _) if later => Features::STREAMING,
            (_, features) => features,
        };
        // 0.2 implies the codes of §14; later drafts negotiate them by name.
        let understood = if later {
            Features::NONE
        } else {
            Features::ERROR_HANDLING
        };
        Ok(Self {
            version,
            features: known.iter().map(means).fold(understood, Features::union),
            extension_names: known.into_iter().map(|at| WORDS[at].0).collect(),
            permissions_required: parse_names(declared.permissions_required).unwrap_or_default(),
            server_id: parse_text(declared.server_id),
            tool_creation: parse_object::<EnabledFlag>(declared.tool_creation)
                .unwrap_or_default()
                .enabled,
            // An invalid value is not the same as none: it must not count as the default.
            trust_level: declared
                .trust_level
                .filter(|raw| raw.get() != "null")
                .map(|raw| parse_text(Some(raw)).unwrap_or_else(|| "?".into())),
            carrier,
        })
    }
}

/// The result of a negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Negotiated {
    /// No MGP. With the reason, if the peer's declaration is invalid.
    Plain(Option<DeclarationError>),
    /// MGP.
    Active(Active),
}

/// The common features of two peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// The lower of the two versions: up to 0.7 the peer's.
    pub version: MgpVersion,
    /// The intersection of the features.
    pub(crate) features: Features,
    /// True if the minor versions differ, which is logged.
    pub minor_differs: bool,
    /// The declaration of the peer, unverified.
    pub peer: Declaration,
    extension_names: Vec<&'static str>,
}

/// No MGP.
pub const PLAIN: Negotiated = Negotiated::Plain(None);

impl Negotiated {
    /// Parses the declaration in a peer's capabilities object, and intersects it with the features offered
    /// by this side.
    pub fn from_capabilities(
        offered: Features,
        capabilities: Option<&RawValue>,
        era: ProtocolFamily,
    ) -> Self {
        // Parsed for each stateless request; most have no declaration.
        let text = capabilities.map_or("", RawValue::get);
        if !can_contain_string(text.as_bytes(), "mgp") {
            return PLAIN;
        }
        let declared = Declaration::parse(capabilities, era);
        Self::intersect(
            offered,
            declared.as_ref().map(Option::as_ref).map_err(Clone::clone),
        )
    }

    /// Restricts the result to these features.
    pub fn restrict_to(&self, parts: Features) -> Self {
        match self {
            Self::Plain(why) => Self::Plain(why.clone()),
            Self::Active(active) => {
                Self::intersect(active.features & parts, Ok(Some(&active.peer)))
            }
        }
    }

    /// Intersects the features offered by this side with the declaration.
    pub(crate) fn intersect(
        offered: Features,
        declared: Result<Option<&Declaration>, DeclarationError>,
    ) -> Self {
        let declared = match declared {
            Ok(Some(declared)) => declared,
            Ok(None) => return Self::Plain(None),
            Err(why) => return Self::Plain(Some(why)),
        };
        let features = offered & declared.features;
        let common = |word: &&str| {
            let means = WORDS.iter().find(|(known, _)| known == word);
            means.is_some_and(|(_, means)| !(*means & features).is_empty())
        };
        let counterpart = declared.version.counterpart();
        Self::Active(Active {
            version: declared.version.min(counterpart),
            features,
            minor_differs: declared.version.minor != counterpart.minor,
            peer: declared.clone(),
            extension_names: declared
                .extension_names
                .iter()
                .copied()
                .filter(common)
                .collect(),
        })
    }

    /// The common features; none without MGP.
    #[must_use]
    pub fn features(&self) -> Features {
        match self {
            Self::Plain(_) => Features::NONE,
            Self::Active(active) => active.features,
        }
    }

    /// The common features; `None` without MGP.
    #[must_use]
    pub fn as_active(&self) -> Option<&Active> {
        match self {
            Self::Plain(_) => None,
            Self::Active(active) => Some(active),
        }
    }

    /// True if MGP is used.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.as_active().is_some()
    }

    /// True if the peer announces a version with four trust levels.
    #[must_use]
    pub fn has_four_trust_levels(&self) -> bool {
        let active = self.as_active();
        active.is_some_and(|active| active.version.has_four_trust_levels())
    }

    /// True if the peer announces a version with tool rejections.
    #[must_use]
    pub fn has_tool_rejections(&self) -> bool {
        let active = self.as_active();
        active.is_some_and(|active| active.version.has_tool_rejections())
    }

    /// True if errors have the codes and recovery fields of §14.
    #[must_use]
    pub fn has_error_codes(&self) -> bool {
        self.features().contains(Features::ERROR_HANDLING)
    }
}

#[derive(Serialize)]
struct DeclarationText<'a> {
    version: String,
    extensions: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    server_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_level: Option<&'a str>,
}

impl DeclarationText<'_> {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and texts are always JSON")
    }
}

impl Active {
    /// True if the peer uses the names of later drafts for permissions: `mgp/permission/await` and `grant`,
    /// in place of `request` and `response`.
    #[must_use]
    pub fn has_draft_permission_methods(&self) -> bool {
        self.extension_names.contains(&"permissions")
    }

    /// The common extensions, with the peer's names.
    #[must_use]
    pub fn extension_names(&self) -> &[&'static str] {
        &self.extension_names
    }

    /// Renders the kernel's answer to a client's declaration (§2.3), as a JSON object: the intersection
    /// with the client's names, in the version that is spoken. Its position is that of the client's declaration
    /// ([`Declaration::carrier`]).
    #[must_use]
    pub fn render_answer(&self, server_id: Option<&str>, trust_level: Option<&str>) -> String {
        let declared = DeclarationText {
            version: self.peer.version.counterpart().to_string(),
            extensions: &self.extension_names,
            server_id,
            trust_level,
        };
        declared.to_json()
    }
}

/// Renders the kernel's own declaration, as a client and in `server/discover` (§2.2), as a JSON object:
/// every name of both vocabularies that is offered completely.
#[must_use]
pub(crate) fn render_offer(offered: Features) -> String {
    let words = WORDS.iter().filter(|(_, means)| offered.contains(*means));
    let words: Vec<_> = words.map(|(word, _)| *word).collect();
    let declared = DeclarationText {
        version: MgpVersion::OURS.to_string(),
        extensions: &words,
        server_id: None,
        trust_level: None,
    };
    declared.to_json()
}

/// Adds a declaration of MGP to a capabilities object.
#[must_use]
pub fn with_declaration(capabilities: &str, carrier: Carrier, declaration: &str) -> String {
    let mut splice = Splice::new(capabilities);
    let within = |outer, name| match member(capabilities, outer).filter(|at| at.starts_with('{')) {
        Some(inner) => (inner, name, declaration.to_owned()),
        None => (
            capabilities,
            outer,
            format!("{{{}:{declaration}}}", quote(name)),
        ),
    };
    let (object, name, json) = match *carrier.path() {
        [outer, name] => within(outer, name),
        ref path => (
            capabilities,
            path.last().copied().unwrap_or("mgp"),
            declaration.to_owned(),
        ),
    };
    match member(object, name) {
        Some(declared) => splice.replace(declared, json),
        None => splice.insert_member(object, name, &json),
    }
    splice.finish().into_owned()
}

/// Removes the declaration of MGP from the capabilities of a stateless client.
#[must_use]
pub fn without_declaration(capabilities: &str) -> String {
    let mut splice = Splice::new(capabilities);
    if let Some(extensions) = member(capabilities, "extensions") {
        splice.remove_members(extensions, &[EXTENSION]);
    }
    splice.finish().into_owned()
}

/// Renders the capabilities of this side as a client, with its MGP offer: in all positions of the legacy
/// protocol, because some SDKs drop all but `experimental`, others all but extensions.
#[must_use]
pub fn with_offer(capabilities: &str, era: ProtocolFamily, offered: Features) -> String {
    let offer = render_offer(offered);
    let declared = |capabilities: &str, carrier| with_declaration(capabilities, carrier, &offer);
    match era {
        ProtocolFamily::Legacy => declared(
            &declared(
                &declared(capabilities, Carrier::Extension),
                Carrier::Experimental,
            ),
            Carrier::Plain,
        ),
        ProtocolFamily::Stateless => declared(capabilities, Carrier::Extension),
    }
}

/// True if a peer's error to an MGP method means that it is not supported: some SDKs check `params` before
/// they look for the method.
#[must_use]
pub fn is_unsupported_code(code: i64) -> bool {
    matches!(code, METHOD_NOT_FOUND | INVALID_PARAMS)
}

#[cfg(test)]
mod tests;
