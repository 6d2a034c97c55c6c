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
pub const CAPABILITIES_MAX: usize = 16;
/// Longest kind of input or of output, in bytes, and what is told of a capability in the answer; a
/// longer one is searched for as a whole.
pub const WORD_MAX: usize = 256;
/// Most kinds of inputs, and of outputs.
pub const TYPES_MAX: usize = 16;
/// Hits worth asking for of each capability: the best may wait for a person where the next does not.
pub const CANDIDATES: usize = 5;
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
    Nothing,
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
pub fn queries(needs: &Requirements) -> Result<Vec<Query>, BadRequest> {
    if needs.capabilities.is_empty() {
        return Err(BadRequest::Nothing);
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
    Ok(once.map(|one| query(one, needs)).collect())
}

fn query(capability: &str, needs: &Requirements) -> Query {
    let mut text = capability.replace('_', " ");
    for (word, types) in [("from", &needs.input_types), ("to", &needs.output_types)] {
        if !types.is_empty() {
            text.push_str(&format!(" {word} {}", types.join(", ").replace('_', " ")));
        }
    }
    Query {
        capability: named(capability),
        text,
    }
}

fn named(capability: &str) -> String {
    match capability.len() > WORD_MAX {
        true => format!(
            "{}…",
            &capability[..capability.floor_char_boundary(WORD_MAX)]
        ),
        false => capability.to_owned(),
    }
}

/// Whether a tool can be called by the one who asks. One that is denied is not a candidate at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// Now.
    Ready,
    /// When a person has allowed its server what it lacks.
    Waits,
    /// Not: its server was denied what it lacks, and asking again changes nothing.
    Lacks,
}

/// A tool that was found for a capability.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// The caller's own handle of it.
    pub tool: T,
    /// How well it fits, by which those of one capability are ordered.
    pub score: f32,
    /// Whether it does what is asked for at all, by the evidence of the search.
    pub fits: bool,
    /// By the kernel's own judgement.
    pub risk: RiskLevel,
    /// Whether it can be called.
    pub readiness: Readiness,
}

/// What was found for one capability, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Sought<T> {
    /// The capability, as it was written.
    pub capability: String,
    /// What the agent may know of.
    pub candidates: Vec<Candidate<T>>,
}

/// May the agent make what is not there? (later drafts of §16.6; A-51)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creating {
    /// The operator switched it on; it is off by default.
    pub switched_on: bool,
    /// The client said `tool_creation: {enabled: true}` when MGP was negotiated, or speaks plain MCP, in
    /// which that cannot be said.
    pub negotiated: bool,
    /// The agent has `code_execution`.
    pub may_run_code: bool,
    /// The policy for servers of this kind: nobody else than a person decides under another one than
    /// `auto_approve`, so that nothing can be promised.
    pub policy: Policy,
    /// What is made ends with the session, so there has to be one.
    pub session: bool,
}

impl Creating {
    /// All of it must hold.
    #[must_use]
    pub fn may(self) -> bool {
        let automatic = self.policy == Policy::AutoApprove;
        let asked_for = self.switched_on && self.negotiated;
        asked_for && self.may_run_code && automatic && self.session
    }
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<T> {
    /// The word.
    pub status: Fulfilment,
    /// To be loaded, each once, in the order of the capabilities.
    pub load: Vec<T>,
    /// Found, and waiting for a person.
    pub pending: Vec<T>,
    /// The capabilities nothing was found for.
    pub unavailable: Vec<String>,
    /// How to make what is not there.
    pub creation: Option<Creation>,
}

/// Decides. `preferred` is a wish: a riskier tool is taken where no other one fits.
pub fn decide<T: Clone + PartialEq>(
    sought: &[Sought<T>],
    preferred: Option<RiskLevel>,
    creating: Creating,
) -> Outcome<T> {
    let mut out = Outcome {
        status: Fulfilment::Unavailable,
        load: Vec::new(),
        pending: Vec::new(),
        unavailable: Vec::new(),
        creation: None,
    };
    for one in sought {
        match choose(&one.candidates, preferred) {
            Some(found) if found.readiness == Readiness::Ready => add(&mut out.load, &found.tool),
            Some(found) => add(&mut out.pending, &found.tool),
            None => out.unavailable.push(one.capability.clone()),
        }
    }
    let nothing = out.load.is_empty() && out.pending.is_empty();
    out.status = match (out.load.is_empty(), out.pending.is_empty()) {
        (false, true) if out.unavailable.is_empty() => Fulfilment::Fulfilled,
        (false, _) => Fulfilment::Partial,
        (true, false) => Fulfilment::PendingApproval,
        (true, true) => Fulfilment::Unavailable,
    };
    if nothing && !out.unavailable.is_empty() && creating.may() {
        out.status = Fulfilment::Creating;
        out.creation = Some(creation(&out.unavailable));
    }
    out
}

/// The best that fits, or what is about as good: that can be called now, rather than when somebody said
/// yes; and within each, that is no riskier than wished.
fn choose<T>(candidates: &[Candidate<T>], preferred: Option<RiskLevel>) -> Option<&Candidate<T>> {
    let open = |one: &&Candidate<T>| one.readiness != Readiness::Lacks;
    let fit = || candidates.iter().filter(open).filter(|one| one.fits);
    let best = fit().map(|one| one.score).fold(0.0, f32::max);
    let near = fit().filter(|one| one.score >= best * SCORE_MIN);
    let wished = |one: &Candidate<T>| preferred.is_none_or(|most| one.risk <= most);
    // Of equals the first is kept: the order of the search is the order of fitting.
    near.min_by(|a, b| {
        let rank = |one: &Candidate<T>| (one.readiness, !wished(one));
        rank(a).cmp(&rank(b)).then(b.score.total_cmp(&a.score))
    })
}

fn add<T: Clone + PartialEq>(list: &mut Vec<T>, tool: &T) {
    if !list.contains(tool) {
        list.push(tool.clone());
    }
}

fn creation(capabilities: &[String]) -> Creation {
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
