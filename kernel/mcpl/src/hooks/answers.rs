//! Validates the answers of servers to hooks (MCPL §10.2, §10.4, §10.5, §6.5).

use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::context::{
    AfterInferenceResult, BeforeInferenceResult, Injection, Position,
};
use serde_json::value::RawValue;

use super::HookPolicy;
use super::fence::FenceMark;
use crate::names;

/// Most injections of one answer; further ones are omitted.
pub(crate) const INJECTIONS_MAX: usize = 32;
/// Longest namespace, in bytes.
pub(crate) const NAMESPACE_MAX: usize = 128;
/// Largest replacement of a model's answer, in bytes: more than any model writes at once.
pub(crate) const RESPONSE_MAX: usize = 4 << 20;
/// Largest metadata passed on after an inference, in bytes.
pub(crate) const METADATA_MAX: usize = 64 << 10;
/// Most reasons for omissions reported of one answer.
const REASONS_MAX: usize = 8;

/// Checks whether a set of a server may be used for a hook; the error is for the log.
pub(crate) type SetCheck<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// Checks whether a server may add at a position now; the error is for the log.
pub(crate) type PositionCheck<'a> = &'a dyn Fn(Position) -> Result<(), String>;

/// One addition to a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedInjection {
    /// The server that added it.
    pub server: ServerId,
    /// The server's set that added it.
    pub set: String,
    /// The server's name for this kind of addition.
    pub(crate) namespace: String,
    /// Its position in the context.
    pub position: Position,
    /// The content within its fence.
    pub content: Content,
    /// As the server wrote them.
    pub(crate) metadata: Option<Box<str>>,
}

impl FencedInjection {
    /// The form for agents: the namespace is that of the server, and the set is added (§10.4).
    #[must_use]
    pub fn to_json(&self) -> String {
        let position = serde_json::to_string(&self.position).expect("a word is always JSON");
        let server = self.server.server();
        let namespace = quote(&names::set_name(&server, &self.namespace));
        let set = quote(&names::set_name(&server, &self.set));
        let metadata = self.metadata.as_ref();
        let metadata = metadata.map(|of| format!(r#","metadata":{of}"#));
        format!(
            r#"{{"namespace":{namespace},"position":{position},"content":{}{},"featureSet":{set}}}"#,
            self.content.to_json(),
            metadata.unwrap_or_default()
        )
    }
}

/// The injections of one server, and reasons for omissions.
#[derive(Debug)]
pub struct ServerInjections {
    /// The server that added them.
    pub server: ServerId,
    /// The set that added them.
    pub set: String,
    /// The valid ones.
    pub injections: Vec<FencedInjection>,
    /// Why others were omitted.
    pub omitted: Vec<String>,
}

/// Validates a server's answer to `context/beforeInference`, each injection separately.
///
/// # Errors
/// The whole answer is invalid, or names a set that may not be used.
pub fn evaluate_before(
    server: &ServerId,
    result: &str,
    (may_use, may_add): (SetCheck<'_>, PositionCheck<'_>),
    (policy, mark): (&HookPolicy, &FenceMark),
) -> Result<ServerInjections, String> {
    let read = BeforeInferenceResult::read(result)?;
    may_use(&read.feature_set)?;
    let mut accepted = ServerInjections {
        server: server.clone(),
        set: read.feature_set.into_owned(),
        injections: Vec::new(),
        omitted: Vec::new(),
    };
    let mut bytes = 0;
    for (n, raw) in read.context_injections.iter().enumerate() {
        let fits = |raw: &str| match bytes + raw.len() > policy.server_bytes {
            _ if n >= INJECTIONS_MAX => Err(format!("it adds more than {INJECTIONS_MAX} things")),
            true => Err(format!("it adds more than {} bytes", policy.server_bytes)),
            false => Ok(()),
        };
        let evaluated = fits(raw.get())
            .and_then(|()| evaluate_injection(server, &accepted.set, raw.get(), mark))
            .and_then(|injection| may_add(injection.position).map(|()| injection));
        match evaluated {
            Ok(injection) => {
                bytes += raw.get().len();
                accepted.injections.push(injection);
            }
            Err(why) if accepted.omitted.len() < REASONS_MAX => {
                accepted.omitted.push(format!("injection {n}: {why}"));
            }
            Err(_) => {}
        }
    }
    Ok(accepted)
}

fn evaluate_injection(
    server: &ServerId,
    set: &str,
    raw: &str,
    mark: &FenceMark,
) -> Result<FencedInjection, String> {
    let read = Injection::read(raw)?;
    let namespace = read.namespace.into_owned();
    if namespace.is_empty() || namespace.len() > NAMESPACE_MAX {
        return Err(format!("a namespace has 1 to {NAMESPACE_MAX} bytes"));
    }
    if namespace.chars().any(char::is_control) {
        return Err("its namespace has control characters".into());
    }
    let content = Content::parse(read.content.get())?;
    let content = mark.enclose(server, &namespace, content);
    Ok(FencedInjection {
        server: server.clone(),
        set: set.to_owned(),
        position: read.position,
        content: content.ok_or("it holds the mark of its fence")?,
        metadata: read.metadata.map(|of| of.get().into()),
        namespace,
    })
}

/// The injections of all servers, by position, then in the order of servers, then as each server wrote them
/// (§10.8).
#[derive(Debug, Default)]
pub struct MergedInjections {
    /// For the context.
    pub injections: Vec<FencedInjection>,
    /// Servers with injections beyond the total limit.
    pub over_limit: Vec<ServerId>,
}

/// Merges injections. Beyond the total limit, those of the last servers in order are omitted.
#[must_use]
pub fn merge(mut added: Vec<ServerInjections>, policy: &HookPolicy) -> MergedInjections {
    policy.sort(&mut added, |injections| &injections.server);
    let mut merged = MergedInjections::default();
    let mut bytes = 0;
    for injection in added.into_iter().flat_map(|from| from.injections) {
        let size = injection.content.size() + injection.metadata.as_ref().map_or(0, |of| of.len());
        // The fence is the kernel's, and does not count.
        if bytes + size > policy.bytes {
            if merged.over_limit.last() != Some(&injection.server) {
                merged.over_limit.push(injection.server);
            }
            continue;
        }
        bytes += size;
        merged.injections.push(injection);
    }
    // A stable sort keeps the order of servers.
    merged
        .injections
        .sort_by_key(|injection| injection.position);
    merged
}

/// A server's answer after an inference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterAnswer {
    /// The set that answers.
    pub set: String,
    /// Replaces the answer of the model.
    pub modified: Option<String>,
    /// As the server wrote them.
    pub metadata: Option<Box<str>>,
}

/// Validates a server's answer to `context/afterInference`.
///
/// # Errors
/// The answer is invalid, or names a set that may not be used.
pub fn evaluate_after(result: &str, may_use: SetCheck<'_>) -> Result<AfterAnswer, String> {
    let read = AfterInferenceResult::read(result)?;
    may_use(&read.feature_set)?;
    let modified = read.modified_response;
    if modified
        .as_ref()
        .is_some_and(|text| text.len() > RESPONSE_MAX)
    {
        return Err(format!(
            "modifiedResponse has more than {RESPONSE_MAX} bytes"
        ));
    }
    let metadata = read.metadata.map(RawValue::get);
    let metadata = metadata.filter(|of| of.len() <= METADATA_MAX);
    Ok(AfterAnswer {
        set: read.feature_set.into_owned(),
        modified: modified.map(std::borrow::Cow::into_owned),
        metadata: metadata.map(Into::into),
    })
}

#[cfg(test)]
mod tests;
