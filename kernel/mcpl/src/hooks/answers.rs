//! What servers answer to hooks, judged (MCPL §10.2, §10.4, §10.5, §6.5).

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

/// Injections of one answer that are looked at; a server that adds more has them left out.
pub(crate) const INJECTIONS_MAX: usize = 32;
/// Longest namespace, in bytes.
pub(crate) const NAMESPACE_MAX: usize = 128;
/// Largest answer that may stand for the model's, in bytes: more than any model writes at once.
pub(crate) const RESPONSE_MAX: usize = 4 << 20;
/// Largest metadata that are passed on behind an inference, in bytes.
pub(crate) const METADATA_MAX: usize = 64 << 10;
/// Reasons why something was left out that are told of one answer.
const REASONS_MAX: usize = 8;

/// Whether a set of a server may be used for a hook; else why not, in words for the log.
pub(crate) type SetCheck<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// One thing that goes into a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedInjection {
    /// Whose it is.
    pub server: ServerId,
    /// In the name of which of the server's sets it came.
    pub set: String,
    /// What the server calls this kind of thing.
    pub(crate) namespace: String,
    /// Where it goes.
    pub position: Position,
    /// What goes there, within its fence.
    pub content: Content,
    /// As the server wrote them.
    pub(crate) metadata: Option<Box<str>>,
}

impl FencedInjection {
    /// As an agent reads it: the namespace is that of the server, and the set it came of stands beside (§10.4).
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

/// What one server added, and what of it was left out.
#[derive(Debug)]
pub struct ServerInjections {
    /// Whose they are.
    pub server: ServerId,
    /// In the name of which set.
    pub set: String,
    /// Those that are in order.
    pub injections: Vec<FencedInjection>,
    /// Why others were left out.
    pub omitted: Vec<String>,
}

/// Judges a server's answer to `context/beforeInference`. Each injection is judged for itself.
///
/// # Errors
/// Why nothing of the answer is taken: it cannot be read, or comes in the name of a set that may not be used.
pub fn evaluate_before(
    server: &ServerId,
    result: &str,
    may_use: SetCheck<'_>,
    (policy, mark): (&HookPolicy, &FenceMark),
) -> Result<ServerInjections, String> {
    let read = BeforeInferenceResult::read(result)?;
    may_use(&read.feature_set)?;
    let mut judged = ServerInjections {
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
        let one =
            fits(raw.get()).and_then(|()| evaluate_injection(server, &judged.set, raw.get(), mark));
        match one {
            Ok(injection) => {
                bytes += raw.get().len();
                judged.injections.push(injection);
            }
            Err(why) if judged.omitted.len() < REASONS_MAX => {
                judged.omitted.push(format!("injection {n}: {why}"));
            }
            Err(_) => {}
        }
    }
    Ok(judged)
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

/// What all servers added, grouped by position; within one in the order of servers, then as each wrote them
/// (§10.8).
#[derive(Debug, Default)]
pub struct MergedInjections {
    /// Those that go into the context.
    pub injections: Vec<FencedInjection>,
    /// Whose were left out because all together are too much.
    pub over_limit: Vec<ServerId>,
}

/// Merges what servers added. Where all together are too much, those of the last servers in order are left out.
#[must_use]
pub fn merge(mut of_servers: Vec<ServerInjections>, policy: &HookPolicy) -> MergedInjections {
    policy.sort(&mut of_servers, |of| &of.server);
    let mut merged = MergedInjections::default();
    let mut bytes = 0;
    for injection in of_servers.into_iter().flat_map(|of| of.injections) {
        let size = injection.content.size() + injection.metadata.as_ref().map_or(0, |of| of.len());
        // The fence is the kernel's, and comes on top.
        if bytes + size > policy.bytes {
            if merged.over_limit.last() != Some(&injection.server) {
                merged.over_limit.push(injection.server);
            }
            continue;
        }
        bytes += size;
        merged.injections.push(injection);
    }
    // Stable: the order of servers stays.
    merged
        .injections
        .sort_by_key(|injection| injection.position);
    merged
}

/// What a server behind an inference answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterAnswer {
    /// In the name of which set.
    pub set: String,
    /// What stands for the answer of the model from now on.
    pub modified: Option<String>,
    /// As the server wrote them.
    pub metadata: Option<Box<str>>,
}

/// Judges a server's answer to `context/afterInference`.
///
/// # Errors
/// Why nothing of it is taken.
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
