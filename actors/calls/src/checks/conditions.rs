//! Check: the condition of a grant holds for the arguments of a call. Links on this machine are followed once, before the
//! call is first sent; what its server may reach is up to its sandbox.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use mgp_engine::policy::access::{CallConditions, Principal, describe_failure};
use mgp_engine::policy::risk;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::AgentId;
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_runtime::task::run_blocking;
use mgp_runtime::time::unix_ms;
use mgp_screening::conditions::{Condition, Facts, ToolFacts};
use tokio::sync::Semaphore;

use crate::Context;

/// Calls whose links are followed at once: each looks at the disk, which may be slow. Further ones wait, each for as
/// long as a call may.
const LOOKUPS_MAX: usize = 8;

/// Limits the lookups of links.
#[derive(Debug)]
pub struct LinkLookups(Semaphore);

impl Default for LinkLookups {
    fn default() -> Self {
        Self(Semaphore::new(LOOKUPS_MAX))
    }
}

/// What conditions can read of a call, besides its arguments.
#[derive(Clone, Debug)]
pub(crate) struct ConditionFacts {
    agent: AgentId,
    node: String,
    tool: Arc<CatalogTool>,
    trust: &'static str,
    effect: &'static str,
    /// Its server is a process of this node.
    is_local_process: bool,
    home: Option<Arc<str>>,
}

impl ConditionFacts {
    pub(crate) fn new(cx: &Context, agent: &AgentId, tool: &Arc<CatalogTool>) -> Self {
        let here = cx.policies.access.table().local_node();
        let caller = agent
            .as_remote()
            .unwrap_or_else(|| here.agent(agent.clone()));
        let servers = cx.servers.load();
        let handle = servers.get(&tool.server);
        let trust = handle.map_or(
            risk::effective_trust(Default::default(), Some("")),
            |handle| handle.trust(),
        );
        let process = handle.and_then(|handle| handle.local_process());
        let effect = cx.policies.pins.effect(&tool.server, &tool.own_name);
        Self {
            agent: caller.agent,
            node: caller.node.to_string(),
            tool: tool.clone(),
            trust: trust.as_str(),
            effect: effect.map_or("destroy", |effect| effect.as_str()),
            is_local_process: process.is_some(),
            home: process.and_then(|process| process.home),
        }
    }

    pub(crate) fn with_arguments<'a>(&'a self, arguments: &'a str) -> Facts<'a> {
        let tool = &self.tool;
        Facts {
            arguments,
            tool: ToolFacts {
                name: &tool.own_name,
                server: tool.server.as_str(),
                risk: tool.requirements.risk.level.as_str(),
                effect: self.effect,
                definition: &tool.raw,
            },
            agent: self.agent.as_str(),
            node: &self.node,
            now_ms: unix_ms(),
            trust: self.trust,
            home: self.home.as_deref(),
        }
    }

    /// Whether a condition holds, and if not, why; with links followed.
    pub(crate) async fn explain(
        &self,
        condition: &Condition,
        arguments: &str,
    ) -> Result<(), String> {
        let facts = self.with_arguments(arguments);
        let holds = condition.evaluate(&facts) == Ok(true);
        if holds && (!self.is_local_process || !condition.uses_paths()) {
            return Ok(());
        }
        let failure = describe_failure(condition, &facts);
        if !holds {
            return Err(failure);
        }
        let (known, arguments, condition) = (self.clone(), arguments.to_owned(), condition.clone());
        let looking = run_blocking("access.links", move || {
            let facts = known.with_arguments(&arguments);
            condition.evaluate_resolved(&facts, &resolve_links) == Ok(true)
        });
        match looking.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(failure),
        }
    }
}

/// A call that is allowed on a condition.
#[derive(Debug)]
pub(super) struct ConditionalCall<'a> {
    pub(super) cx: &'a Context,
    pub(super) principal: &'a Principal,
    /// The tool's name as the caller knows it.
    pub(super) name: &'a str,
    pub(super) tool: &'a Arc<CatalogTool>,
    pub(super) arguments: &'a str,
}

impl ConditionalCall<'_> {
    /// Whether a condition holds by the text of the paths.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let conditions = self.conditions();
        let facts = self.facts()?;
        match conditions.find_holding(&facts.with_arguments(self.arguments)) {
            Some(_) => Ok(()),
            None => Err(self.refusal(&conditions)),
        }
    }

    /// The same, and where the links of its paths lead.
    pub(super) async fn check_with_links(&self) -> Result<(), Refusal> {
        let conditions = self.conditions();
        let known = self.facts()?;
        let holding = conditions.find_holding(&known.with_arguments(self.arguments));
        let Some((_, condition)) = holding else {
            return Err(self.refusal(&conditions));
        };
        if !known.is_local_process || !condition.uses_paths() {
            return Ok(());
        }
        let lookups = &self.cx.policies.links.0;
        let _permit = lookups.acquire().await.expect("it is never closed");
        let (arguments, looked_up) = (self.arguments.to_owned(), conditions.clone());
        let looking = run_blocking("access.links", move || {
            looked_up.hold_resolved(&known.with_arguments(&arguments), &resolve_links)
        });
        match looking.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refusal(&conditions)),
            Err(error) => Err(Refusal::Internal(format!(
                "the links of its paths could not be followed: {error}"
            ))),
        }
    }

    fn conditions(&self) -> CallConditions {
        let table = self.cx.policies.access.table();
        let tool = self.tool;
        table.conditions(self.principal, &tool.server, &tool.own_name, unix_ms())
    }

    fn facts(&self) -> Result<ConditionFacts, Refusal> {
        let agent = self.principal.agent();
        let agent =
            agent.ok_or_else(|| Refusal::Internal("a condition for the operator".into()))?;
        Ok(ConditionFacts::new(self.cx, agent, self.tool))
    }

    /// The caller has the tool in its list, so that it exists is nothing new.
    fn refusal(&self, conditions: &CallConditions) -> Refusal {
        let reveals = self.cx.policies.access.should_reveal_denials();
        let allowed = conditions.describe();
        Refusal::Denied(Box::new(Denial::Condition {
            tool: self.name.to_owned(),
            rule: format!("no condition of a grant holds: {allowed}"),
            allowed: (reveals && !allowed.is_empty()).then_some(allowed),
        }))
    }
}

/// A path with all links resolved. What does not exist yet is resolved up to where it will be; `None` where that is not
/// known.
fn resolve_links(path: &str) -> Option<String> {
    let mut existing = Path::new(path).to_path_buf();
    if !existing.is_absolute() {
        return None;
    }
    let mut missing: Vec<OsString> = Vec::new();
    loop {
        match fs::canonicalize(&existing) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return real.to_str().map(str::to_owned);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        // A link to something that does not exist yet leads there.
        if fs::symlink_metadata(&existing).is_ok() {
            return None;
        }
        // `..` has no name: what it leaves does not exist.
        missing.push(existing.file_name()?.to_owned());
        existing.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// EXT-142
    #[test]
    fn links_lead_where_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        fs::create_dir_all(root.join("notes/deep")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        symlink("../secret", root.join("notes/link")).unwrap();
        symlink("/nowhere/yet", root.join("notes/dangling")).unwrap();
        symlink("loop", root.join("notes/loop")).unwrap();
        symlink("deep", root.join("notes/fine")).unwrap();
        for (path, expected) in [
            ("notes/deep/a", Some("notes/deep/a")),
            ("notes/new/folder/a", Some("notes/new/folder/a")),
            ("notes/link", Some("secret")),
            ("notes/link/new", Some("secret/new")),
            ("notes/link/../a", Some("a")),
            ("notes/fine/a", Some("notes/deep/a")),
            ("notes/dangling", None),
            ("notes/dangling/a", None),
            ("notes/loop", None),
            ("notes/loop/a", None),
            ("notes/new/../../secret/a", None),
        ] {
            assert_eq!(resolve_links(&at(path)), expected.map(at), "{path}");
        }
        assert_eq!(resolve_links("notes/a"), None);
        assert_eq!(resolve_links("~/notes"), None);
    }
}
