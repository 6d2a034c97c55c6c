//! What comes of an agent's request for tools (MGP §16.6): which of those that were found are loaded,
//! which wait for a person, and when an agent may make what is not there.
//!
//! Searching, and asking the gates of servers, is done by the caller, capability by capability; what
//! it found comes in, a decision goes out.

use std::collections::BTreeSet;

use mgp_protocol::mgp::discovery::Register;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_protocol::mgp::permission::Policy;
use mgp_protocol::mgp::tools::{Constraints, Creation, Fulfilment, Requirements};

use crate::policy::trust::TrustLevel;
use mgp_screening::code_safety::{Level, MAX_CODE_BYTES};

#[cfg(test)]
mod tests;

/// Most capabilities of one request: each is a search of its own.
pub(crate) const CAPABILITIES_MAX: usize = 16;
/// Longest kind of input or of output, in bytes, and what is told of a capability in the answer; a
/// longer one is searched for as a whole.
pub(crate) const WORD_MAX: usize = 256;
/// Most kinds of inputs, and of outputs.
pub(crate) const TYPES_MAX: usize = 16;
/// Hits worth asking for of each capability: the best may wait for a person where the next does not.
pub const CANDIDATES_MAX: usize = 5;
/// How far behind the best a tool may be, by the score of the same search, to be taken in its place:
/// because it can be called now, or is no riskier than wished.
///
/// It must do the same work, not some of it. Tools of one name in two servers stood within 0.93 of each
/// other. Of tools within 0.9 of the best one every fourth was of use, of those below 0.8 none; of the
/// best ones two of three.
const SCORE_MIN: f32 = 0.9;
/// Why a request is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Nothing is asked for.
    #[error("name at least one capability, such as \"statistics\"")]
    Empty,
    /// More than [`CAPABILITIES_MAX`], or [`TYPES_MAX`].
    #[error("{0} has {1} entries, over the limit of {2}: ask for what the next steps need")]
    TooMany(&'static str, usize, usize),
    /// Empty, or over [`WORD_MAX`].
    #[error(
        "{0} holds a text of {1} bytes; none is empty, and kinds of inputs and outputs have {WORD_MAX} at most"
    )]
    Length(&'static str, usize),
}

/// A search that a request makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The capability it is for, as it was named; of a long one the beginning, and `…`.
    pub capability: String,
    /// What to search for.
    pub text: String,
}

/// The searches of a request: one for each capability, each named once.
///
/// # Errors
/// [`BadRequest`] for one that asks for nothing or too much.
pub fn build_queries(needs: &Requirements) -> Result<Vec<Query>, BadRequest> {
    if needs.capabilities.is_empty() {
        return Err(BadRequest::Empty);
    }
    for (name, list, max) in [
        ("capabilities", &needs.capabilities, CAPABILITIES_MAX),
        ("input_types", &needs.input_types, TYPES_MAX),
        ("output_types", &needs.output_types, TYPES_MAX),
    ] {
        if list.len() > max {
            return Err(BadRequest::TooMany(name, list.len(), max));
        }
        // A capability is a description: a long one is no mistake.
        let most = if name == "capabilities" {
            usize::MAX
        } else {
            WORD_MAX
        };
        let fits = |text: &str| (1..=most).contains(&text.trim().len());
        if let Some(text) = list.iter().find(|text| !fits(text)) {
            return Err(BadRequest::Length(name, text.trim().len()));
        }
    }
    let mut seen = BTreeSet::new();
    let once = needs.capabilities.iter().map(|one| one.trim());
    let once = once.filter(|one| seen.insert(one.to_lowercase()));
    Ok(once.map(|one| build_query(one, needs)).collect())
}

fn build_query(capability: &str, needs: &Requirements) -> Query {
    let mut text = capability.replace('_', " ");
    for (word, types) in [("from", &needs.input_types), ("to", &needs.output_types)] {
        if !types.is_empty() {
            text.push_str(&format!(" {word} {}", types.join(", ").replace('_', " ")));
        }
    }
    Query {
        capability: truncate_capability(capability),
        text,
    }
}

fn truncate_capability(capability: &str) -> String {
    if capability.len() > WORD_MAX {
        format!(
            "{}…",
            &capability[..capability.floor_char_boundary(WORD_MAX)]
        )
    } else {
        capability.to_owned()
    }
}

/// Whether a tool can be called by the one who asks. One that is denied is not a candidate at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// Now.
    Ready,
    /// When a person has allowed its server what it lacks.
    AwaitingApproval,
    /// Not: its server was denied what it lacks, and asking again changes nothing.
    PermissionDenied,
}

/// A tool that was found for a capability.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// The caller's own handle of it.
    pub tool: T,
    /// How well it fits, by which those of one capability are ordered.
    pub score: f32,
    /// Whether it does what is asked for at all, by the evidence of the search.
    pub is_match: bool,
    /// By the kernel's own judgement.
    pub risk: RiskLevel,
    /// Whether it can be called.
    pub readiness: Readiness,
}

/// What was found for one capability, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct CapabilityMatches<T> {
    /// The capability, as it was written.
    pub capability: String,
    /// What the agent may know of.
    pub candidates: Vec<Candidate<T>>,
}

/// May the agent make what is not there? (later drafts of §16.6; A-51)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationConditions {
    /// The operator switched it on; it is off by default.
    pub is_enabled: bool,
    /// The client said `tool_creation: {enabled: true}` when MGP was negotiated, or speaks plain MCP, in
    /// which that cannot be said.
    pub is_negotiated: bool,
    /// The agent has `code_execution`.
    pub can_run_code: bool,
    /// The policy for servers of this kind: nobody else than a person decides under another one than
    /// `auto_approve`, so that nothing can be promised.
    pub policy: Policy,
    /// What is made ends with the session, so there has to be one.
    pub has_session: bool,
}

impl CreationConditions {
    /// All of it must hold.
    #[must_use]
    pub(crate) fn is_allowed(self) -> bool {
        let automatic = self.policy == Policy::AutoApprove;
        let asked_for = self.is_enabled && self.is_negotiated;
        asked_for && self.can_run_code && automatic && self.has_session
    }
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOutcome<T> {
    /// The word.
    pub status: Fulfilment,
    /// To be loaded, each once, in the order of the capabilities.
    pub to_load: Vec<T>,
    /// Found, and waiting for a person.
    pub pending: Vec<T>,
    /// The capabilities nothing was found for.
    pub unavailable: Vec<String>,
    /// How to make what is not there.
    pub creation: Option<Creation>,
}

/// Decides. `preferred` is a wish: a riskier tool is taken where no other one fits.
pub fn decide<T: Clone + PartialEq>(
    sought: &[CapabilityMatches<T>],
    preferred: Option<RiskLevel>,
    creating: CreationConditions,
) -> RequestOutcome<T> {
    let mut out = RequestOutcome {
        status: Fulfilment::Unavailable,
        to_load: Vec::new(),
        pending: Vec::new(),
        unavailable: Vec::new(),
        creation: None,
    };
    for one in sought {
        match choose_candidate(&one.candidates, preferred) {
            Some(found) if found.readiness == Readiness::Ready => {
                add_unique(&mut out.to_load, &found.tool)
            }
            Some(found) => add_unique(&mut out.pending, &found.tool),
            None => out.unavailable.push(one.capability.clone()),
        }
    }
    let nothing = out.to_load.is_empty() && out.pending.is_empty();
    out.status = match (out.to_load.is_empty(), out.pending.is_empty()) {
        (false, true) if out.unavailable.is_empty() => Fulfilment::Fulfilled,
        (false, _) => Fulfilment::Partial,
        (true, false) => Fulfilment::PendingApproval,
        (true, true) => Fulfilment::Unavailable,
    };
    if nothing && !out.unavailable.is_empty() && creating.is_allowed() {
        out.status = Fulfilment::Creating;
        out.creation = Some(describe_creation(&out.unavailable));
    }
    out
}

/// The best that fits, or what is about as good: that can be called now, rather than when somebody said
/// yes; and within each, that is no riskier than wished.
fn choose_candidate<T>(
    candidates: &[Candidate<T>],
    preferred: Option<RiskLevel>,
) -> Option<&Candidate<T>> {
    let open = |one: &&Candidate<T>| one.readiness != Readiness::PermissionDenied;
    let fit = || candidates.iter().filter(open).filter(|one| one.is_match);
    let best = fit().map(|one| one.score).fold(0.0, f32::max);
    let near = fit().filter(|one| one.score >= best * SCORE_MIN);
    let wished = |one: &Candidate<T>| preferred.is_none_or(|most| one.risk <= most);
    // Of equals the first is kept: the order of the search is the order of fitting.
    near.min_by(|a, b| {
        let rank = |one: &Candidate<T>| (one.readiness, !wished(one));
        rank(a).cmp(&rank(b)).then(b.score.total_cmp(&a.score))
    })
}

fn add_unique<T: Clone + PartialEq>(list: &mut Vec<T>, tool: &T) {
    if !list.contains(tool) {
        list.push(tool.clone());
    }
}

fn describe_creation(capabilities: &[String]) -> Creation {
    let register = <Register as mgp_protocol::mcp::Method>::METHOD;
    Creation {
        instructions: format!(
            "No tool does this: {}. Write an MCP server that has one, in one file without other files beside it, and send it with {register} as `code`, with `session_scoped` true. Its code is checked by a lint (`strict`), and runs in a sandbox, which is the boundary. Its tools can be called when the answer says `connected`.",
            capabilities.join(", ")
        ),
        constraints: Constraints {
            register_with: register,
            languages: vec!["python", "javascript"],
            code_safety_level: Level::Strict.as_str(),
            trust_level: TrustLevel::Sandboxed.as_str(),
            max_code_size_bytes: MAX_CODE_BYTES,
            session_scoped: true,
        },
    }
}
