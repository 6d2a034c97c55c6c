//! The decision about an agent's request for tools (MGP §16.6): which found tools are loaded, which wait for approval, and
//! when the agent may create a missing tool.
//!
//! The caller searches and checks permissions for each capability, and passes the results.

use std::collections::BTreeSet;

use mgp_protocol::mgp::discovery::Register;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_protocol::mgp::permission::Policy;
use mgp_protocol::mgp::tools::{Constraints, Creation, Fulfilment, Requirements};

use crate::policy::trust::TrustLevel;
use mgp_screening::code_safety::{Level, MAX_CODE_BYTES};

#[cfg(test)]
mod tests;

/// Most capabilities of one request: each requirements a search.
pub(crate) const CAPABILITIES_MAX: usize = 16;
/// Longest input or output type, and longest echo of a capability in the answer, in bytes. A longer capability is still
/// searched for as a whole.
pub(crate) const WORD_MAX: usize = 256;
/// Most input types, and most output types.
pub(crate) const TYPES_MAX: usize = 16;
/// Search hits per capability: the best may need an approval where the next does not.
pub const CANDIDATES_MAX: usize = 5;
/// The least score, relative to the best hit of the search, of a tool that may replace it because it can be called now or
/// has at most the preferred risk.
///
/// The replacement must do the same work. In measurements, tools of one name in two servers scored within 0.93 of each
/// other. Of tools within 0.9 of the best one a quarter was useful, below 0.8 none; of the best ones two thirds.
const SCORE_MIN: f32 = 0.9;
/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// No capability is named.
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

/// One search of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The requested capability, truncated with `…` if long.
    pub capability: String,
    /// The search text.
    pub text: String,
}

/// The searches of a request: one for each distinct capability.
///
/// # Errors
/// [`BadRequest`] if it names nothing or too much.
pub fn build_queries(requirements: &Requirements) -> Result<Vec<Query>, BadRequest> {
    if requirements.capabilities.is_empty() {
        return Err(BadRequest::Empty);
    }
    for (name, list, max) in [
        ("capabilities", &requirements.capabilities, CAPABILITIES_MAX),
        ("input_types", &requirements.input_types, TYPES_MAX),
        ("output_types", &requirements.output_types, TYPES_MAX),
    ] {
        if list.len() > max {
            return Err(BadRequest::TooMany(name, list.len(), max));
        }
        // A capability is a description and may be long.
        let max_len = if name == "capabilities" {
            usize::MAX
        } else {
            WORD_MAX
        };
        let fits = |text: &str| (1..=max_len).contains(&text.trim().len());
        if let Some(text) = list.iter().find(|text| !fits(text)) {
            return Err(BadRequest::Length(name, text.trim().len()));
        }
    }
    let mut seen = BTreeSet::new();
    let capabilities = requirements.capabilities.iter().map(|text| text.trim());
    let distinct = capabilities.filter(|text| seen.insert(text.to_lowercase()));
    Ok(distinct
        .map(|text| build_query(text, requirements))
        .collect())
}

fn build_query(capability: &str, requirements: &Requirements) -> Query {
    let mut text = capability.replace('_', " ");
    for (word, types) in [
        ("from", &requirements.input_types),
        ("to", &requirements.output_types),
    ] {
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

/// Whether the requesting agent can call a tool. A denied tool is no candidate at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// It can be called now.
    Ready,
    /// Its server needs a permission that waits for approval.
    AwaitingApproval,
    /// Its server was denied a permission that it needs.
    PermissionDenied,
}

/// A tool that was found for a capability.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// The caller's handle of the tool.
    pub tool: T,
    /// The search score, by which the candidates of one capability are ordered.
    pub score: f32,
    /// Whether the search has evidence that it matches at all.
    pub is_match: bool,
    /// The risk as assessed by the kernel.
    pub risk: RiskLevel,
    /// Whether it can be called.
    pub readiness: Readiness,
}

/// What was found for one capability, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct CapabilityMatches<T> {
    /// The requested capability.
    pub capability: String,
    /// The candidates that the agent may know of.
    pub candidates: Vec<Candidate<T>>,
}

/// Whether the agent may create a missing tool (later drafts of §16.6; A-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreationConditions {
    /// The operator switched it on; it is off by default.
    pub is_enabled: bool,
    /// The client negotiated `tool_creation: {enabled: true}`, or uses plain MCP, which has no such option.
    pub is_negotiated: bool,
    /// The agent has `code_execution`.
    pub can_run_code: bool,
    /// The policy for such servers: only `auto_approve` needs no operator's decision, so only then can the kernel promise
    /// the outcome.
    pub policy: Policy,
    /// A created tool ends with the session, so one must exist.
    pub has_session: bool,
}

impl CreationConditions {
    #[must_use]
    pub(crate) fn is_allowed(self) -> bool {
        let is_automatic = self.policy == Policy::AutoApprove;
        let is_requested = self.is_enabled && self.is_negotiated;
        is_requested && self.can_run_code && is_automatic && self.has_session
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOutcome<T> {
    /// The overall status.
    pub status: Fulfilment,
    /// Tools to load, each once, in the order of the capabilities.
    pub to_load: Vec<T>,
    /// Tools that wait for approval.
    pub pending: Vec<T>,
    /// Capabilities without a match.
    pub unavailable: Vec<String>,
    /// Instructions to create the missing tools.
    pub creation: Option<Creation>,
}

/// Decides about a request. A riskier tool than `preferred` is chosen if no other one fits.
pub fn decide<T: Clone + PartialEq>(
    matches: &[CapabilityMatches<T>],
    preferred: Option<RiskLevel>,
    creation: CreationConditions,
) -> RequestOutcome<T> {
    let mut out = RequestOutcome {
        status: Fulfilment::Unavailable,
        to_load: Vec::new(),
        pending: Vec::new(),
        unavailable: Vec::new(),
        creation: None,
    };
    for capability in matches {
        match choose_candidate(&capability.candidates, preferred) {
            Some(found) if found.readiness == Readiness::Ready => {
                add_unique(&mut out.to_load, &found.tool)
            }
            Some(found) => add_unique(&mut out.pending, &found.tool),
            None => out.unavailable.push(capability.capability.clone()),
        }
    }
    let is_empty = out.to_load.is_empty() && out.pending.is_empty();
    out.status = match (out.to_load.is_empty(), out.pending.is_empty()) {
        (false, true) if out.unavailable.is_empty() => Fulfilment::Fulfilled,
        (false, _) => Fulfilment::Partial,
        (true, false) => Fulfilment::PendingApproval,
        (true, true) => Fulfilment::Unavailable,
    };
    if is_empty && !out.unavailable.is_empty() && creation.is_allowed() {
        out.status = Fulfilment::Creating;
        out.creation = Some(describe_creation(&out.unavailable));
    }
    out
}

/// The best match, or one about as good: preferably callable without an approval, then with at most the preferred risk.
fn choose_candidate<T>(
    candidates: &[Candidate<T>],
    preferred: Option<RiskLevel>,
) -> Option<&Candidate<T>> {
    let is_open = |c: &&Candidate<T>| c.readiness != Readiness::PermissionDenied;
    let fitting = || candidates.iter().filter(is_open).filter(|c| c.is_match);
    let best = fitting().map(|c| c.score).fold(0.0, f32::max);
    let near = fitting().filter(|c| c.score >= best * SCORE_MIN);
    let is_preferred = |c: &Candidate<T>| preferred.is_none_or(|most| c.risk <= most);
    // Ties keep the order of the search.
    near.min_by(|a, b| {
        let rank = |c: &Candidate<T>| (c.readiness, !is_preferred(c));
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
