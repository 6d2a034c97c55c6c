//! What of MGP two peers have in common (MGP §2): only that is ever said between them.
//!
//! Three places carry the declaration: `capabilities.mgp`, the same below `experimental` for SDKs
//! that allow nothing else, and the extension [`EXTENSION`], the only place of the modern era and of
//! SDKs made for it in a legacy session. Later drafts split
//! some extensions of 0.2 and gave the parts names of their own; both vocabularies are understood,
//! and a peer is answered in the one it used.

use std::borrow::Cow;
use std::fmt;
use std::ops::{BitAnd, BitOr};

use mgp_json::{Splice, can_contain_string, member, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::dialect::ProtocolFamily;
use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND};

/// A key of `capabilities.extensions`, where both eras may carry the declaration.
pub(crate) const EXTENSION: &str = "dev.cloto/mgp";
/// Most names read of a list in a declaration, a bound on what a peer can make us keep; the rest of
/// a longer list is not there.
pub(crate) const NAMES_MAX: usize = 64;
/// Longest name in a declaration, in bytes; a longer one is not there.
pub(crate) const NAME_MAX: usize = 256;

/// A version of MGP. Suffixes such as `-draft` are read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MgpVersion {
    /// Must match (§2.4).
    pub(crate) major: u32,
    /// Backward compatible (§2.4), and never a gate of its own.
    pub(crate) minor: u32,
    /// Says nothing about what is understood.
    pub patch: u32,
}

impl MgpVersion {
    /// The version this kernel announces.
    pub(crate) const OURS: Self = Self {
        major: 0,
        minor: 2,
        patch: 0,
    };

    /// Reads `1.2.3`, with or without a suffix.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

/// A set of what MGP can do between two peers, as fine as any draft divides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u16);

impl Features {
    /// Nothing.
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
    /// The codes and recovery fields of §14, which 0.2 takes as understood.
    pub const ERROR_HANDLING: Self = Self(1 << 12);
    /// Everything there is a word for.
    pub const ALL: Self = Self((1 << 13) - 1);

    /// True when all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when there is nothing in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both together.
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
/// How many of [`WORDS`] are of 0.2.
const OF_0_2: usize = 9;
/// The one name that means less where the finer ones are used.
const STREAMING: &str = "streaming";

/// Where a declaration stands in a capabilities object.
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
    /// The members that lead from the capabilities object to the declaration.
    #[must_use]
    pub(crate) const fn path(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["mgp"],
            Self::Experimental => &["experimental", "mgp"],
            Self::Extension => &["extensions", EXTENSION],
        }
    }
}

/// What a peer said about itself: claims, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The version it speaks.
    pub version: MgpVersion,
    /// What the names it listed mean together.
    pub(crate) features: Features,
    /// The names that are known, as it wrote them; each once.
    pub(crate) extension_names: Vec<&'static str>,
    /// Of a server: the permissions it needs, in its own spelling.
    pub permissions_required: Vec<String>,
    /// Of a server: what it calls itself.
    pub server_id: Option<String>,
    /// Of a server: how far it says it may be trusted, as it wrote it.
    pub trust_level: Option<String>,
    /// Of a client: it wants to be told when it may make a tool itself (later drafts, §16.6).
    pub tool_creation: bool,
    /// Where it stood; the answer belongs to the same place.
    pub carrier: Carrier,
}

/// Why a declaration is taken as none: the peer is spoken to in plain MCP, and this is logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Something else than an object.
    #[error("its `mgp` capability is no object")]
    NotAnObject,
    /// `version` is not there or no semantic version.
    #[error("its MGP version {0:?} is no semantic version")]
    NoVersion(String),
    /// `extensions` is no list of names.
    #[error("its MGP `extensions` is no list of names")]
    NoExtensions,
    /// Another major version (§2.4).
    #[error("it speaks MGP {theirs}, this kernel {}", MgpVersion::OURS)]
    OtherMajor {
        /// What it announced.
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

/// An object read as `T`; anything else is not there. Serde would take an array too.
fn parse_object<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    raw.filter(|raw| raw.get().starts_with('{'))
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn parse_text(raw: Option<&RawValue>) -> Option<String> {
    let text: Cow<'_, str> = serde_json::from_str(raw?.get()).ok()?;
    (text.len() <= NAME_MAX).then(|| text.into_owned())
}

/// The strings of a list; `None` when it is no list.
fn parse_names(raw: Option<&RawValue>) -> Option<Vec<String>> {
    let Some(raw) = raw else {
        return Some(Vec::new());
    };
    let all: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let read = all.into_iter().filter_map(|raw| parse_text(Some(raw)));
    Some(read.take(NAMES_MAX).collect())
}

impl Declaration {
    /// Reads what a peer of this era declares in its capabilities object. Of several places in a legacy
    /// peer's the first counts, in the order of [`Carrier`]; of a modern peer only its extension is seen.
    ///
    /// # Errors
    /// [`DeclarationError`] when it declares MGP in a way that cannot be followed.
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
        let said: RawDeclaration<'_> =
            parse_object(Some(raw)).ok_or(DeclarationError::NotAnObject)?;
        let version = parse_text(said.version).unwrap_or_default();
        let version = MgpVersion::parse(&version).ok_or(DeclarationError::NoVersion(version))?;
        if version.major != MgpVersion::OURS.major {
            return Err(DeclarationError::OtherMajor { theirs: version });
        }
        let listed = parse_names(said.extensions).ok_or(DeclarationError::NoExtensions)?;
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
            // Later drafts negotiate progress apart.
            (STREAMING, _) if later => Features::STREAMING,
            (_, features) => features,
        };
        // 0.2 takes the codes of §14 as understood; later drafts negotiate them by name.
        let understood = if later {
            Features::NONE
        } else {
            Features::ERROR_HANDLING
        };
        Ok(Self {
            version,
            features: known.iter().map(means).fold(understood, Features::union),
            extension_names: known.into_iter().map(|at| WORDS[at].0).collect(),
            permissions_required: parse_names(said.permissions_required).unwrap_or_default(),
            server_id: parse_text(said.server_id),
            tool_creation: parse_object::<EnabledFlag>(said.tool_creation)
                .unwrap_or_default()
                .enabled,
            // A value that is no text is not the same as none: it must not pass for the default.
            trust_level: said
                .trust_level
                .filter(|raw| raw.get() != "null")
                .map(|raw| parse_text(Some(raw)).unwrap_or_else(|| "?".into())),
            carrier,
        })
    }
}

/// What is said between two peers from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Negotiated {
    /// No word of MGP. Says why, when the peer meant to speak it.
    Plain(Option<DeclarationError>),
    /// MGP.
    Active(Active),
}

/// The common ground of two peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// The lower of the two versions.
    pub version: MgpVersion,
    /// The intersection: what may be said.
    pub(crate) features: Features,
    /// The minor versions differ, which is worth a line in the log.
    pub minor_differs: bool,
    /// What the peer said of itself: claims, all of them.
    pub peer: Declaration,
    extension_names: Vec<&'static str>,
}

/// No word of MGP.
pub const PLAIN: Negotiated = Negotiated::Plain(None);

impl Negotiated {
    /// Reads what a peer of this era declares in its capabilities object, and intersects it with what
    /// this side offers.
    pub fn from_capabilities(
        offered: Features,
        capabilities: Option<&RawValue>,
        era: ProtocolFamily,
    ) -> Self {
        // Read for each modern request; most say nothing of it.
        let text = capabilities.map_or("", RawValue::get);
        if !can_contain_string(text.as_bytes(), "mgp") {
            return PLAIN;
        }
        let said = Declaration::parse(capabilities, era);
        Self::intersect(
            offered,
            said.as_ref().map(Option::as_ref).map_err(Clone::clone),
        )
    }

    /// The same with no more than these parts.
    pub fn restrict_to(&self, parts: Features) -> Self {
        match self {
            Self::Plain(why) => Self::Plain(why.clone()),
            Self::Active(active) => {
                Self::intersect(active.features & parts, Ok(Some(&active.peer)))
            }
        }
    }

    /// Intersects what this side offers with what the other declared.
    pub(crate) fn intersect(
        offered: Features,
        said: Result<Option<&Declaration>, DeclarationError>,
    ) -> Self {
        let said = match said {
            Ok(Some(said)) => said,
            Ok(None) => return Self::Plain(None),
            Err(why) => return Self::Plain(Some(why)),
        };
        let features = offered & said.features;
        let common = |word: &&str| {
            let means = WORDS.iter().find(|(known, _)| known == word);
            means.is_some_and(|(_, means)| !(*means & features).is_empty())
        };
        Self::Active(Active {
            version: said.version.min(MgpVersion::OURS),
            features,
            minor_differs: said.version.minor != MgpVersion::OURS.minor,
            peer: said.clone(),
            extension_names: said
                .extension_names
                .iter()
                .copied()
                .filter(common)
                .collect(),
        })
    }

    /// What may be said; nothing to a plain peer.
    #[must_use]
    pub fn features(&self) -> Features {
        match self {
            Self::Plain(_) => Features::NONE,
            Self::Active(active) => active.features,
        }
    }

    /// The common ground; `None` with a plain peer.
    #[must_use]
    pub fn as_active(&self) -> Option<&Active> {
        match self {
            Self::Plain(_) => None,
            Self::Active(active) => Some(active),
        }
    }

    /// True when any word of MGP may be said.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.as_active().is_some()
    }

    /// True when errors carry the codes and recovery fields of §14.
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
    /// True when the peer uses the names of later drafts for permissions: it is asked with
    /// `mgp/permission/await` and told with `grant`, not with `request` and `response`.
    #[must_use]
    pub fn has_draft_permission_methods(&self) -> bool {
        self.extension_names.contains(&"permissions")
    }

    /// The extensions in common, in the peer's own words.
    #[must_use]
    pub fn extension_names(&self) -> &[&'static str] {
        &self.extension_names
    }

    /// The kernel's half toward a client that declared itself (§2.3), as a JSON object: the
    /// intersection in the client's own words. Belongs where the client's own stood ([`Declaration::carrier`]).
    #[must_use]
    pub fn render_answer(&self, server_id: Option<&str>, trust_level: Option<&str>) -> String {
        let said = DeclarationText {
            version: MgpVersion::OURS.to_string(),
            extensions: &self.extension_names,
            server_id,
            trust_level,
        };
        said.to_json()
    }
}

/// What the kernel declares first, as a client and in `server/discover` (§2.2), as a JSON object:
/// every word of both vocabularies that is offered whole.
#[must_use]
pub(crate) fn render_offer(offered: Features) -> String {
    let words = WORDS.iter().filter(|(_, means)| offered.contains(*means));
    let words: Vec<_> = words.map(|(word, _)| *word).collect();
    let said = DeclarationText {
        version: MgpVersion::OURS.to_string(),
        extensions: &words,
        server_id: None,
        trust_level: None,
    };
    said.to_json()
}

/// A capabilities object with a declaration of MGP in it.
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
        Some(said) => splice.replace(said, json),
        None => splice.insert_member(object, name, &json),
    }
    splice.finish().into_owned()
}

/// The capabilities of a modern client without its declaration of MGP.
#[must_use]
pub fn without_declaration(capabilities: &str) -> String {
    let mut splice = Splice::new(capabilities);
    if let Some(extensions) = member(capabilities, "extensions") {
        splice.remove_members(extensions, &[EXTENSION]);
    }
    splice.finish().into_owned()
}

/// The capabilities of this side as a client, with what it offers of MGP: in all places of the legacy
/// era, as some SDKs keep nothing but what is below `experimental`, others their extensions alone.
#[must_use]
pub fn with_offer(capabilities: &str, era: ProtocolFamily, offered: Features) -> String {
    let offer = render_offer(offered);
    let said = |capabilities: &str, carrier| with_declaration(capabilities, carrier, &offer);
    match era {
        ProtocolFamily::Legacy => said(
            &said(
                &said(capabilities, Carrier::Extension),
                Carrier::Experimental,
            ),
            Carrier::Plain,
        ),
        ProtocolFamily::Stateless => said(capabilities, Carrier::Extension),
    }
}

/// True when a peer's error to a word of MGP means that it does not know it: some SDKs check
/// `params` before they look for the method.
#[must_use]
pub fn is_unsupported_code(code: i64) -> bool {
    matches!(code, METHOD_NOT_FOUND | INVALID_PARAMS)
}

#[cfg(test)]
mod tests;
