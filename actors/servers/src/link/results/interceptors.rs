//! Asks the interceptors of other servers about a result: first those that check it, at once, then those that change it,
//! one after the other. An interceptor that does not answer blocks the result.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mgp_callers::InFlightCall;
use mgp_callers::request::{Caller, Outcome};
use mgp_json::{Splice, member};
use mgp_policy::escape_for_display;
use mgp_protocol::refusal::Refusal;
use mgp_screening::results::interceptors::{
    Interceptor, InterceptorKind, InterceptorName, invocation, read_mutation, read_validation,
};

use crate::link::{Call, Link};

/// How long an interceptor may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection, or why there is none.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Arc<Link>, Refusal>> + Send + 'a>>;

/// Connects to the servers of interceptors.
pub trait InterceptorServers: Send + Sync + std::fmt::Debug {
    /// The connection of a server of this node; one that sleeps is started.
    fn connect<'a>(
        &'a self,
        server: &'a str,
        caller: Option<&'a Caller>,
        in_flight: &'a InFlightCall,
    ) -> Connecting<'a>;
}

/// The interceptors of one connection's results.
#[derive(Debug)]
pub(super) struct InterceptorChain {
    names: Vec<InterceptorName>,
    servers: Arc<dyn InterceptorServers>,
    /// What each server declared on its connection of this number.
    declared: Mutex<BTreeMap<String, Declared>>,
}

/// The number of a connection, and what its server declared there.
type Declared = (u64, Arc<[Interceptor]>);

/// One that is asked about a result.
struct Asked {
    name: InterceptorName,
    link: Arc<Link>,
    definition: Interceptor,
}

impl InterceptorChain {
    /// `None` without interceptors.
    pub(super) fn new(
        names: &[InterceptorName],
        servers: Option<Arc<dyn InterceptorServers>>,
    ) -> Option<Self> {
        let servers = servers.filter(|_| !names.is_empty())?;
        Some(Self {
            names: names.to_vec(),
            servers,
            declared: Mutex::default(),
        })
    }

    /// The result as it may pass; `None` if nothing changed.
    pub(super) async fn run(
        &self,
        call: &Call<'_>,
        method: &str,
        result: &Bytes,
    ) -> Result<Option<Bytes>, String> {
        let Some(event) = event_of(method) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(result).map_err(|error| error.to_string())?;
        // The state of a task has the result of the call, once it has ended.
        let is_state = method == "tasks/get";
        let Some(payload) = (if is_state {
            member(text, "result")
        } else {
            Some(text)
        }) else {
            return Ok(None);
        };
        let mut asked = Vec::new();
        for name in &self.names {
            let one = self.find(call, name).await?;
            if one.definition.covers_results_of(event) {
                asked.push(one);
            }
        }
        asked.sort_by(|one, other| one.definition.order().cmp(&other.definition.order()));
        let (checking, changing): (Vec<Asked>, Vec<Asked>) = asked
            .into_iter()
            .partition(|one| one.definition.kind == InterceptorKind::Validation);
        let checks = join_all(checking.iter().map(|one| one.check(event, payload))).await;
        checks.into_iter().collect::<Result<(), String>>()?;
        let mut changed: Option<String> = None;
        for one in &changing {
            let now = changed.as_deref().unwrap_or(payload);
            changed = one.change(event, now).await?.or(changed);
        }
        Ok(changed.map(|changed| match is_state {
            false => changed.into(),
            true => {
                let mut splice = Splice::new(text);
                splice.replace(payload, changed);
                splice.finish().into_owned().into()
            }
        }))
    }

    /// The interceptor and its connection; its server is started if it sleeps.
    async fn find(&self, call: &Call<'_>, name: &InterceptorName) -> Result<Asked, String> {
        let (caller, in_flight) = (call.caller.map(|it| &**it), &**call.in_flight);
        let connecting = self.servers.connect(&name.server, caller, in_flight);
        let link = connecting.await.map_err(|refusal| failed(name, &refusal))?;
        let declared = self.declared(name, &link).await?;
        let mut found = declared.iter().filter(|it| it.name == name.name);
        let definition = found.next().cloned();
        let definition = definition.ok_or_else(|| format!("there is no interceptor {name}"))?;
        if found.next().is_some() {
            return Err(format!("interceptor {name} is declared twice"));
        }
        if !definition.has_known_hook() {
            return Err(format!("interceptor {name} does not say when it is called"));
        }
        let name = name.clone();
        Ok(Asked {
            name,
            link,
            definition,
        })
    }

    /// What its server declares, asked once for each connection.
    async fn declared(
        &self,
        name: &InterceptorName,
        link: &Arc<Link>,
    ) -> Result<Arc<[Interceptor]>, String> {
        let lock = || self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&name.server).cloned();
        if let Some((_, declared)) = known.filter(|(number, _)| *number == link.number) {
            return Ok(declared);
        }
        let answer = ask(link, "interceptors/list", "{}").await;
        let answer = answer.map_err(|refusal| failed(name, &refusal))?;
        let declared: Arc<[Interceptor]> =
            Interceptor::parse_list(&String::from_utf8_lossy(&answer)).into();
        lock().insert(name.server.clone(), (link.number, declared.clone()));
        Ok(declared)
    }
}

impl Asked {
    async fn invoke<T>(
        &self,
        event: &str,
        payload: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let params = invocation(&self.name.name, event, payload);
        let answer = ask(&self.link, "interceptor/invoke", &params).await;
        let answer = answer.map_err(|refusal| failed(&self.name, &refusal))?;
        read(&String::from_utf8_lossy(&answer)).map_err(|why| failed(&self.name, &why))
    }

    async fn check(&self, event: &str, payload: &str) -> Result<(), String> {
        let verdict = self.invoke(event, payload, read_validation).await;
        match verdict {
            _ if self.definition.is_audit() => Ok(()),
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(format!(
                "interceptor {} refuses it: {}",
                self.name,
                escape_for_display(&why)
            )),
            Err(why) => Err(why),
        }
    }

    async fn change(&self, event: &str, payload: &str) -> Result<Option<String>, String> {
        let changed = self.invoke(event, payload, read_mutation).await;
        match (self.definition.is_audit(), changed) {
            (true, _) => Ok(None),
            (false, Ok(Some(next))) if !keeps_form(event, payload, &next) => {
                Err(failed(&self.name, &"what it answers is no result any more"))
            }
            (false, changed) => changed,
        }
    }
}

/// The event of an answer's method; `None` for those without an interceptor.
fn event_of(method: &str) -> Option<&str> {
    match method {
        "tools/call" | "tasks/result" | "tasks/get" => Some("tools/call"),
        "resources/read" | "prompts/get" => Some(method),
        _ => None,
    }
}

/// Whether a changed result still has what its method's results have, and is of the same kind.
fn keeps_form(event: &str, before: &str, after: &str) -> bool {
    let list = match event {
        "tools/call" => "content",
        "prompts/get" => "messages",
        _ => "contents",
    };
    let is_list = |text| member(text, list).is_some_and(|it| it.starts_with('['));
    let keeps = |name| member(before, name).is_none() || member(after, name).is_some();
    (is_list(after) || !is_list(before))
        && keeps("structuredContent")
        && member(before, "resultType") == member(after, "resultType")
}

async fn ask(link: &Arc<Link>, method: &str, params: &str) -> Outcome {
    Box::pin(link.request_within(method, params, TIMEOUT)).await
}

fn failed(name: &InterceptorName, why: &dyn std::fmt::Display) -> String {
    format!("interceptor {name} does not work: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-251: a change keeps the form of a result.
    #[test]
    fn changed_results_keep_their_form() {
        let before = r#"{"content":[],"structuredContent":{"a":1}}"#;
        for (after, keeps) in [
            (r#"{"content":[1],"structuredContent":{}}"#, true),
            (r#"{"content":[]}"#, false),
            (r#"{"content":"x","structuredContent":{}}"#, false),
            (r#"{"structuredContent":{}}"#, false),
            (
                r#"{"content":[],"structuredContent":{},"resultType":"task"}"#,
                false,
            ),
            ("{}", false),
        ] {
            assert_eq!(keeps_form("tools/call", before, after), keeps, "{after}");
        }
        assert!(keeps_form(
            "prompts/get",
            r#"{"messages":[]}"#,
            r#"{"messages":[]}"#
        ));
        assert!(!keeps_form(
            "resources/read",
            r#"{"contents":[]}"#,
            r#"{"contents":{}}"#
        ));
    }

    #[test]
    fn results_of_tasks_are_results_of_calls() {
        for method in ["tools/call", "tasks/result", "tasks/get"] {
            assert_eq!(event_of(method), Some("tools/call"));
        }
        assert_eq!(event_of("prompts/get"), Some("prompts/get"));
        assert_eq!(event_of("completion/complete"), None);
    }
}
