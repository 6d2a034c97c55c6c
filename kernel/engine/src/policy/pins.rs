//! Pinned tool definitions: a tool whose definition changes after approval waits for approval again, so that an
//! approved definition cannot be swapped for another.

mod diff;
mod skill_diff;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use mgp_json::{elements, member, members, quote, unquote};
use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};

pub use self::diff::render_diff;

/// Most pinned tools of one server. Further tools are unknown and count as pending.
pub(crate) const PINS_MAX: usize = 10_000;

/// Nesting depth from which on the spelling counts; schemas are far less deep.
const DEPTH_MAX: usize = 64;

/// What happens to a changed tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinMode {
    /// Nothing is pinned.
    Off,
    /// It is pending and reported, but can be called.
    #[default]
    Warn,
    /// It is pending, and neither listed nor called until it is approved.
    Block,
}

/// The rules for changed tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinRules {
    /// What happens to them.
    pub mode: PinMode,
    /// Members that the server may change without approval: of the definition, or as `_meta.NAME` of its `_meta`.
    /// Members that [`can_ignore_member`] rejects have no effect.
    pub ignored: Vec<String>,
}

/// Whether the operator may exclude this member from the pin: no decision of the kernel depends on it.
#[must_use]
pub fn can_ignore_member(member: &str) -> bool {
    let of_parts = DefinitionPart::ALL.iter().flat_map(|part| part.members());
    let decides = ["name", "_meta", "_meta.featureSet"];
    !member.is_empty() && !of_parts.chain(&decides).any(|known| *known == member)
}

/// The parts of a definition that are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionPart {
    /// `title`, `description`: what the model reads.
    Description,
    /// `inputSchema`.
    Input,
    /// `outputSchema`.
    Output,
    /// `security`, `annotations`: the basis of the risk level.
    Security,
    /// All others but its name: `_meta`, which names its feature set (MCPL §6), `icons`, `execution`, and unknown
    /// members.
    Other,
}

impl DefinitionPart {
    const ALL: [Self; 5] = [
        Self::Description,
        Self::Input,
        Self::Output,
        Self::Security,
        Self::Other,
    ];

    /// The members of a definition in this part; empty for the part that contains all remaining ones.
    fn members(self) -> &'static [&'static str] {
        match self {
            Self::Description => &["title", "description"],
            Self::Input => &["inputSchema"],
            Self::Output => &["outputSchema"],
            Self::Security => &["security", "annotations"],
            Self::Other => &[],
        }
    }

    /// The part that contains a member; `None` for the name, which identifies the tool.
    fn containing(member: &str) -> Option<Self> {
        let mut named = Self::ALL.into_iter();
        let named = named.find(|part| part.members().contains(&member));
        (member != "name").then_some(named.unwrap_or(Self::Other))
    }
}

impl fmt::Display for DefinitionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Description => "description",
            Self::Input => "inputSchema",
            Self::Output => "outputSchema",
            Self::Security => "security",
            Self::Other => "other members",
        })
    }
}

/// The hashes of a definition's parts. White space and the order of members do not matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<[u8; 32]>", into = "Vec<[u8; 32]>")]
pub struct Pin {
    parts: [[u8; 32]; 4],
    /// [`DefinitionPart::Other`]; `None` in a pin stored by an older kernel.
    others: Option<[u8; 32]>,
}

impl From<Vec<[u8; 32]>> for Pin {
    /// Missing hashes get a value that no definition has: such a pin matches nothing.
    fn from(hashes: Vec<[u8; 32]>) -> Self {
        let mut hashes = hashes.into_iter();
        Self {
            parts: std::array::from_fn(|_| hashes.next().unwrap_or_default()),
            others: hashes.next(),
        }
    }
}

impl From<Pin> for Vec<[u8; 32]> {
    fn from(pin: Pin) -> Self {
        pin.parts.into_iter().chain(pin.others).collect()
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

impl fmt::Display for Pin {
    /// Twelve digits, enough for a person; comparisons use the whole hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = blake3::hash(Vec::from(*self).as_flattened());
        f.write_str(&whole.to_hex()[..12])
    }
}

impl Pin {
    /// The pin of a definition as the server wrote it, without ignored members; `None` when it is no JSON object.
    #[must_use]
    pub fn from_definition(definition: &str, ignored: &[String]) -> Option<Self> {
        let mut all = members(definition)?;
        // All values of a repeated member count, in their order, because parsers differ in which one they use.
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let is_ignored =
            |name: &str| can_ignore_member(name) && ignored.iter().any(|it| it == name);
        let hash = |part: DefinitionPart| {
            let mut text = Vec::new();
            let of_part = all.iter().filter(|(name, _)| {
                DefinitionPart::containing(name) == Some(part) && !is_ignored(name)
            });
            let mut of_part: Vec<_> = of_part.collect();
            let order = |name: &str| part.members().iter().position(|member| *member == name);
            of_part.sort_by_key(|(name, _)| order(name));
            for (name, raw) in of_part {
                let mut value = Vec::new();
                if name == "_meta" {
                    write_meta(raw.get(), &is_ignored, &mut value)
                } else {
                    write_canonical(raw.get(), 0, &mut value)
                }
                // An empty `_meta` has no content.
                if value.is_empty() {
                    continue;
                }
                let named = if part == DefinitionPart::Other {
                    quote(name)
                } else {
                    name.to_string()
                };
                text.extend_from_slice(named.as_bytes());
                text.append(&mut value);
                text.push(b'\n');
            }
            *blake3::hash(&text).as_bytes()
        };
        let [parts @ .., others] = DefinitionPart::ALL.map(hash);
        Some(Self {
            parts,
            others: Some(others),
        })
    }

    /// The pin of what nobody approved yet: that of no definition.
    fn unapproved() -> Self {
        Self::from(Vec::new())
    }

    /// The parts in which two pins differ, among those that both have.
    #[must_use]
    pub(crate) fn changed_parts(&self, other: &Self) -> Vec<DefinitionPart> {
        let pairs = self.parts.iter().map(Some).chain([self.others.as_ref()]);
        let pairs = pairs.zip(other.parts.iter().map(Some).chain([other.others.as_ref()]));
        let differ = DefinitionPart::ALL
            .into_iter()
            .zip(pairs)
            .filter(|(_, pair)| matches!(pair, (Some(one), Some(other)) if one != other));
        differ.map(|(part, _)| part).collect()
    }
}

/// Writes the `_meta` of a definition without ignored members.
fn write_meta(raw: &str, is_ignored: &impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    let Some(mut inner) = members(raw.trim()) else {
        return write_canonical(raw, 0, out);
    };
    inner.retain(|(name, _)| !is_ignored(&format!("_meta.{name}")));
    inner.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, value) in inner {
        out.extend_from_slice(quote(&name).as_bytes());
        out.push(b':');
        write_canonical(value.get(), 1, out);
        out.push(b',');
    }
}

/// Writes a value with sorted members and no white space. Repeated members keep their order. Numbers and everything
/// deeper than [`DEPTH_MAX`] are copied as written.
fn write_canonical(raw: &str, depth: usize, out: &mut Vec<u8>) {
    let raw = raw.trim();
    let within = depth < DEPTH_MAX;
    if let Some(mut inner) = members(raw).filter(|_| within) {
        inner.sort_by(|(a, _), (b, _)| a.cmp(b));
        out.push(b'{');
        for (name, value) in inner {
            out.extend_from_slice(quote(&name).as_bytes());
            out.push(b':');
            write_canonical(value.get(), depth + 1, out);
            out.push(b',');
        }
        out.push(b'}');
    } else if let Some(items) = elements(raw).filter(|_| within) {
        out.push(b'[');
        for item in items {
            write_canonical(item.get(), depth + 1, out);
            out.push(b',');
        }
        out.push(b']');
    } else if let Some(text) = unquote(raw) {
        out.extend_from_slice(quote(&text).as_bytes());
    } else {
        out.extend_from_slice(raw.as_bytes());
    }
}

/// What a tool does to its environment, as its server says and a person confirmed. Whatever is not confirmed may destroy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It adds, but destroys nothing.
    Write,
}

impl Effect {
    /// What the annotations of a definition say (MCP, `ToolAnnotations`).
    #[must_use]
    pub fn declared(definition: &str) -> Option<Self> {
        let annotations = member(definition, "annotations")?;
        let hint = |name| member(annotations, name).and_then(|hint| hint.parse::<bool>().ok());
        if hint("readOnlyHint") == Some(true) {
            Some(Self::Read)
        } else {
            (hint("destructiveHint") == Some(false)).then_some(Self::Write)
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The state of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PinRecord {
    approved: Pin,
    by: Option<String>,
    pending: Option<Pin>,
    /// A person denied the pending definition.
    #[serde(default)]
    denied: bool,
    /// What a person confirmed of the approved definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
}

/// A tool that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPin {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub tool: String,
    /// Its present pin, which an approval must name.
    pub(crate) pin: Pin,
    /// The parts that differ from the approved definition.
    pub(crate) changed: Vec<DefinitionPart>,
}

/// A pinned tool, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedTool {
    /// The server's own name for it.
    pub tool: String,
    /// The approved definition.
    pub approved: Pin,
    /// Who approved it; `None` for the definition that was listed first.
    pub approved_by: Option<String>,
    /// The definition last listed, if it differs.
    pub pending: Option<Pin>,
    /// The parts in which they differ.
    pub changed: Vec<DefinitionPart>,
    /// A person denied the pending definition.
    pub denied: bool,
    /// What a person confirmed of the approved definition.
    pub effect: Option<Effect>,
}

/// What is pinned: a tool, or a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The server's own name for it, or its own URI.
    pub own_name: Arc<str>,
    /// As the server sent it.
    pub text: Arc<str>,
    /// What it is.
    pub kind: DefinitionKind,
}

/// The kind of a pinned definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionKind {
    /// A tool: that which is listed first is approved.
    Tool,
    /// The entry of a skill: likewise.
    Skill,
    /// The entry of a skill within another one, which needs an approval of its own (SEP-2640, nested skills).
    NestedSkill,
    /// A prompt: pinned only when the scan holds it.
    Prompt,
    /// What a server says to models about itself, as a JSON object: likewise.
    Instructions,
}

impl DefinitionKind {
    /// Whether the definition that is listed first is approved and pinned.
    const fn is_approved_first(self) -> bool {
        matches!(self, Self::Tool | Self::Skill)
    }

    /// Whether it is pinned only when the scan holds it.
    const fn is_pinned_when_held(self) -> bool {
        matches!(self, Self::Prompt | Self::Instructions)
    }
}

/// What the scan says of a definition that nobody approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Agents may have it, as far as its pin allows.
    Clear,
    /// A person should read it first.
    Held,
}

/// The name of a server's instructions among its definitions. Tools are not called so: it has brackets.
pub const INSTRUCTIONS_NAME: &str = "(instructions)";

/// Before the name of a prompt among a server's definitions.
pub const PROMPT_PREFIX: &str = "(prompt) ";

/// The name of a prompt among a server's definitions.
#[must_use]
pub fn prompt_name(own_name: &str) -> String {
    format!("{PROMPT_PREFIX}{own_name}")
}

impl Definition {
    /// Its pin; `None` when it is no JSON object.
    #[must_use]
    pub fn pin(&self, ignored: &[String]) -> Option<Pin> {
        match self.kind {
            DefinitionKind::Tool | DefinitionKind::Prompt | DefinitionKind::Instructions => {
                Pin::from_definition(&self.text, ignored)
            }
            DefinitionKind::Skill | DefinitionKind::NestedSkill => {
                Pin::from_definition(&skill_diff::canonical_entry(&self.text), &[])
            }
        }
    }

    /// What changed, for people.
    #[must_use]
    pub fn render_diff(&self, approved: Option<&str>, changed: &[DefinitionPart]) -> Vec<String> {
        match self.kind {
            DefinitionKind::Tool | DefinitionKind::Prompt | DefinitionKind::Instructions => {
                render_diff(&self.own_name, approved, &self.text, changed)
            }
            DefinitionKind::Skill | DefinitionKind::NestedSkill => {
                skill_diff::render_diff(&self.own_name, approved, &self.text)
            }
        }
    }
}

/// The result of checking a listed definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinCheck {
    /// Pins are off.
    Disabled,
    /// A new tool: it is pinned now, and the pin must be stored.
    New,
    /// Unchanged since approval.
    Unchanged,
    /// Changed since approval.
    Changed {
        /// The parts that differ.
        changed: Vec<DefinitionPart>,
        /// The change is new: it must be stored and reported.
        is_new: bool,
        /// It is blocked, by the mode or by a person.
        blocked: bool,
    },
    /// [`PINS_MAX`] tools of this server are pinned.
    TooMany {
        /// It is blocked.
        blocked: bool,
    },
}

impl PinCheck {
    /// True when the tool is neither listed nor called.
    #[cfg(test)]
    pub(crate) fn is_blocked(&self) -> bool {
        match self {
            Self::Changed { blocked, .. } | Self::TooMany { blocked } => *blocked,
            Self::Disabled | Self::New | Self::Unchanged => false,
        }
    }
}

/// Why an approval was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinApprovalError {
    /// No such tool is pinned.
    #[error("{0} is not pinned")]
    NotPinned(String),
    /// No such tool is pending.
    #[error("no change of {0} waits for approval")]
    NotPending(String),
    /// It changed again since the person read it.
    #[error("{tool} has changed again since: it is {current} now; read it anew and approve that")]
    ChangedAgain {
        /// Canonical name.
        tool: String,
        /// Its present pin.
        current: Box<Pin>,
    },
}

/// The pins of all servers. A removed tool keeps its pin, so that it cannot return as another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins(HashMap<ServerId, BTreeMap<String, PinRecord>>);

impl Pins {
    /// A definition was listed by its server.
    pub fn check_listed(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
        mode: PinMode,
    ) -> PinCheck {
        self.check_definition(
            server,
            (tool, DefinitionKind::Tool),
            pin,
            mode,
            Sight::Clear,
        )
    }

    /// Whether somebody approved this definition, or it was the first before there was a scan.
    #[must_use]
    pub fn is_approved(&self, server: &ServerId, tool: &str, pin: &Pin) -> bool {
        let known = self.0.get(server).and_then(|tools| tools.get(tool));
        known.is_some_and(|known| known.approved.changed_parts(pin).is_empty())
    }

    /// Whether no definition of this tool was ever approved.
    #[must_use]
    pub fn is_unapproved(&self, server: &ServerId, tool: &str) -> bool {
        let known = self.0.get(server).and_then(|tools| tools.get(tool));
        known.is_some_and(|known| known.approved == Pin::unapproved())
    }

    /// The same for any kind of definition. `sight` counts if it [is not approved](Self::is_approved).
    pub fn check_definition(
        &mut self,
        server: &ServerId,
        (tool, kind): (&str, DefinitionKind),
        pin: Pin,
        mode: PinMode,
        sight: Sight,
    ) -> PinCheck {
        if mode == PinMode::Off {
            return PinCheck::Disabled;
        }
        let blocked = mode == PinMode::Block;
        let tools = self.0.entry(server.clone()).or_default();
        let full = tools.len() >= PINS_MAX;
        let is_held = sight == Sight::Held;
        let is_approved_first = kind.is_approved_first() && !is_held;
        if kind.is_pinned_when_held() && !is_held && !tools.contains_key(tool) {
            return PinCheck::Unchanged;
        }
        let known = match tools.get_mut(tool) {
            Some(known) => known,
            None if full => {
                return PinCheck::TooMany {
                    blocked: blocked || is_held,
                };
            }
            None => {
                let first = PinRecord {
                    approved: if is_approved_first {
                        pin
                    } else {
                        Pin::unapproved()
                    },
                    by: None,
                    pending: None,
                    denied: false,
                    effect: None,
                };
                let known = tools.entry(tool.to_owned()).or_insert(first);
                if is_approved_first {
                    return PinCheck::New;
                }
                known
            }
        };
        if known.approved.changed_parts(&pin).is_empty() {
            // The missing part is added to a pin of an older kernel.
            known.approved = pin;
            known.pending = None;
            known.denied = false;
            return PinCheck::Unchanged;
        }
        // What was held at first sight stays so until a person approves it, whatever it becomes meanwhile.
        let is_never_approved =
            kind != DefinitionKind::NestedSkill && known.approved == Pin::unapproved();
        let news = known.pending.replace(pin) != Some(pin);
        known.denied &= !news;
        PinCheck::Changed {
            changed: known.approved.changed_parts(&pin),
            is_new: news,
            blocked: blocked || known.denied || is_held || is_never_approved,
        }
    }

    /// A person read and approved the definition with this pin.
    ///
    /// # Errors
    /// [`PinApprovalError`] when another definition is pending.
    pub fn approve(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
        by: &str,
    ) -> Result<(), PinApprovalError> {
        let name = || crate::tool_names::canonical_name(server, tool);
        let known = self.0.get_mut(server).and_then(|tools| tools.get_mut(tool));
        let Some((known, pending)) = known.and_then(|k| k.pending.map(|pending| (k, pending)))
        else {
            return Err(PinApprovalError::NotPending(name()));
        };
        if pending != pin {
            return Err(PinApprovalError::ChangedAgain {
                tool: name(),
                current: Box::new(pending),
            });
        }
        *known = PinRecord {
            approved: pin,
            by: Some(by.to_owned()),
            pending: None,
            denied: false,
            effect: None,
        };
        Ok(())
    }

    /// A person confirmed what the approved definition says of its effect; `None` takes that back. An approval of
    /// another definition does, too.
    ///
    /// # Errors
    /// [`PinApprovalError`] if the tool is not pinned, or its definition is not the approved one.
    pub fn confirm_effect(
        &mut self,
        server: &ServerId,
        tool: &str,
        effect: Option<Effect>,
    ) -> Result<(), PinApprovalError> {
        let name = || crate::tool_names::canonical_name(server, tool);
        let known = self.0.get_mut(server).and_then(|tools| tools.get_mut(tool));
        let known = known.ok_or_else(|| PinApprovalError::NotPinned(name()))?;
        match known.pending {
            Some(current) if effect.is_some() => Err(PinApprovalError::ChangedAgain {
                tool: name(),
                current: Box::new(current),
            }),
            Some(_) | None => {
                known.effect = effect;
                Ok(())
            }
        }
    }

    /// The confirmed effects of tools whose current definition is the approved one.
    pub fn effects(&self, server: &ServerId) -> impl Iterator<Item = (&str, Effect)> {
        let tools = self.0.get(server).into_iter().flatten();
        tools.filter_map(|(tool, known)| {
            let effect = known.effect.filter(|_| known.pending.is_none())?;
            Some((tool.as_str(), effect))
        })
    }

    /// A person denied the definition with this pin: it stays blocked until the definition changes.
    ///
    /// # Errors
    /// [`PinApprovalError`] when another definition is pending.
    pub fn deny(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
    ) -> Result<(), PinApprovalError> {
        let known = self.0.get_mut(server).and_then(|tools| tools.get_mut(tool));
        match known.and_then(|known| Some((known.pending?, known))) {
            Some((pending, known)) if pending == pin => {
                known.denied = true;
                Ok(())
            }
            Some((pending, _)) => Err(PinApprovalError::ChangedAgain {
                tool: crate::tool_names::canonical_name(server, tool),
                current: Box::new(pending),
            }),
            None => {
                let name = crate::tool_names::canonical_name(server, tool);
                Err(PinApprovalError::NotPending(name))
            }
        }
    }

    /// The approved pin; `None` for an unknown tool.
    #[must_use]
    pub fn approved_pin(&self, server: &ServerId, tool: &str) -> Option<Pin> {
        let known = self.0.get(server)?.get(tool)?;
        Some(known.approved)
    }

    /// Whether the tool's last listed definition is the approved one.
    #[must_use]
    pub fn is_unchanged(&self, server: &ServerId, tool: &str) -> bool {
        let known = self.0.get(server).and_then(|tools| tools.get(tool));
        known.is_some_and(|known| known.pending.is_none())
    }

    /// All pending tools, by server and tool.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingPin> {
        let all = self.0.iter().flat_map(|(server, tools)| {
            tools.iter().filter_map(move |(tool, pinned)| {
                let pin = pinned.pending.filter(|_| !pinned.denied)?;
                Some(PendingPin {
                    server: server.clone(),
                    tool: tool.clone(),
                    pin,
                    changed: pinned.approved.changed_parts(&pin),
                })
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| (&a.server, &a.tool).cmp(&(&b.server, &b.tool)));
        all
    }

    /// How many tools of the server are pinned.
    #[must_use]
    pub fn count(&self, server: &ServerId) -> usize {
        self.0.get(server).map_or(0, BTreeMap::len)
    }

    /// The pinned tools of a server by name, after `after`.
    pub fn pinned_tools(
        &self,
        server: &ServerId,
        after: Option<&str>,
    ) -> impl Iterator<Item = PinnedTool> {
        let from = after.map_or(Unbounded, Excluded);
        let tools = self.0.get(server).into_iter();
        let tools = tools.flat_map(move |tools| tools.range::<str, _>((from, Unbounded)));
        tools.map(|(tool, record)| PinnedTool {
            tool: tool.clone(),
            approved: record.approved,
            approved_by: record.by.clone(),
            pending: record.pending,
            changed: record
                .pending
                .map_or_else(Vec::new, |pin| record.approved.changed_parts(&pin)),
            denied: record.denied,
            effect: record.effect,
        })
    }

    /// The operator removed the server: its pins are dropped.
    #[cfg(test)]
    pub(crate) fn remove_server(&mut self, server: &ServerId) {
        self.0.remove(server);
    }
}
