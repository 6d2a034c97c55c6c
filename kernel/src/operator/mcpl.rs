//! `mgp/kernel/mcpl/*`: feature sets and scopes.

use mgp_callers::request::{Outcome, Request};
use mgp_calls::name_sources;
use mgp_engine::doors::name_resolver::ResolvedName;
use mgp_engine::doors::suggestions::nearest_name;
use mgp_mcpl::HostEvent;
use mgp_mcpl_engine::feature_sets::{DeclaredSet, ServerSets};
use mgp_mcpl_engine::policy::SetPattern;
use mgp_mcpl_engine::scopes::template::LabelTemplate;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::mcpl::{
    FeatureSetList, Forget, Forgotten, ListedFeatureSet, McplServer, Switch, Switched,
};
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::operator_actor;

use super::{Operator, json, read};

impl Operator {
    /// `mgp/kernel/mcpl/sets`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) fn list_feature_sets(&self) -> Outcome {
        let sets = self.mcpl.sets().load();
        let servers = sets.servers.iter();
        let servers = servers.map(|(server, sets)| McplServer {
            server: server.to_string(),
            sets: sets
                .sets
                .iter()
                .map(|(name, declared)| to_listed_feature_set(name, declared))
                .collect(),
        });
        json(&FeatureSetList {
            servers: servers.collect(),
            unknown: self.unknown_set_warnings(),
        })
    }

    /// Warnings about configured or switched sets that their running servers do not declare.
    fn unknown_set_warnings(&self) -> Vec<String> {
        let (rules, switches) = {
            let keeper = self.mcpl.set_keeper();
            (keeper.rules(), keeper.switches())
        };
        let sets = self.mcpl.sets().load();
        let mut unknown = Vec::new();
        for (server, sets) in &sets.servers {
            let configured = rules.servers.get(server).into_iter();
            let configured = configured.flat_map(|rules| rules.enable.iter().chain(&rules.disable));
            let switched = switches.get(server).into_iter().flat_map(|all| all.keys());
            for pattern in configured.chain(switched) {
                if pattern.is_exact() && !sets.sets.contains_key(pattern.as_str()) {
                    unknown.push(format!(
                        "server {server} has no feature set {}",
                        pattern.as_str()
                    ));
                }
            }
        }
        unknown
    }

    /// `mgp/kernel/mcpl/switch`.
    ///
    /// # Errors
    /// Unknown names, unless they are marked as future ones; a failed write.
    pub(crate) async fn switch_feature_sets(&self, request: &Request) -> Outcome {
        let typed: Switch = read(request)?;
        let server = self.parse_server(&typed.server, !typed.yet_unknown)?;
        if typed.sets.is_empty() {
            return Err(Refusal::BadParams("no feature set is named".into()));
        }
        let patterns = typed.sets.iter().map(|set| SetPattern::parse(set));
        let patterns: Vec<SetPattern> = patterns
            .collect::<Result<_, _>>()
            .map_err(|why| Refusal::BadParams(why.to_string()))?;
        if !typed.yet_unknown && typed.enabled.is_some() {
            self.require_sets(&server, &patterns)?;
        }
        let keeper = self.mcpl.set_keeper();
        let switched = keeper.switch(&server, &patterns, typed.enabled, operator_actor());
        let changed = switched
            .await
            .map_err(|why| Refusal::Internal(why.to_string()))?;
        for server in changed {
            self.mcpl.dispatch(&HostEvent::SetsChanged(server));
        }
        let sets = self.mcpl.sets().load();
        let (enabled, disabled) = sets
            .get(&server)
            .map(|sets| enabled_and_disabled(sets))
            .unwrap_or_default();
        json(&Switched {
            server: server.to_string(),
            enabled,
            disabled,
        })
    }

    /// `mgp/kernel/mcpl/forget`.
    ///
    /// # Errors
    /// An unknown server; a failed write.
    pub(crate) async fn forget_scopes(&self, request: &Request) -> Outcome {
        let typed: Forget = read(request)?;
        // A removed server may have left approvals.
        let server = self.parse_server(&typed.server, false)?;
        let forgotten = self.mcpl.scopes().forget(&server, typed.set.as_deref());
        json(&Forgotten {
            scopes: forgotten.await.map_err(Refusal::Internal)?,
        })
    }

    fn parse_server(&self, typed: &str, must_exist: bool) -> Result<ServerId, Refusal> {
        let resolver = self.name_sources.name_resolver();
        let resolved: ResolvedName<ServerId> =
            name_sources::require_name(resolver.resolve_server(typed), must_exist)?;
        Ok(resolved.value)
    }

    /// Rejects set names that the server does not declare.
    fn require_sets(&self, server: &ServerId, patterns: &[SetPattern]) -> Result<(), Refusal> {
        let sets = self.mcpl.sets().load();
        let Some(sets) = sets.get(server) else {
            return Err(Refusal::BadParams(format!(
                "server {server} does not speak MCPL, or is not connected; `--yet-unknown` says it for later"
            )));
        };
        for pattern in patterns {
            let mut names = sets.sets.keys().map(String::as_str);
            if names
                .clone()
                .any(|name| pattern.specificity(name).is_some())
            {
                continue;
            }
            let near = nearest_name(pattern.as_str(), names.clone());
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            let declared = match names.next() {
                None => "it has none".to_owned(),
                Some(_) => sets.sets.keys().cloned().collect::<Vec<_>>().join(", "),
            };
            return Err(Refusal::BadParams(format!(
                "server {server} has no feature set {}{}; its sets: {declared}",
                pattern.as_str(),
                near.unwrap_or_default(),
            )));
        }
        Ok(())
    }
}

fn enabled_and_disabled(sets: &ServerSets) -> (Vec<String>, Vec<String>) {
    let update = sets.update();
    (update.enabled, update.disabled)
}

fn to_listed_feature_set(name: &str, declared: &DeclaredSet) -> ListedFeatureSet {
    let patterns = declared.scope.patterns();
    ListedFeatureSet {
        set: name.to_owned(),
        description: declared.set.description.clone(),
        uses: declared.set.uses.iter().map(ToString::to_string).collect(),
        scoped: declared.set.scoped,
        rollback: declared.set.rollback,
        enabled: declared.enabled,
        by: declared.reason.render(),
        waits: declared.approved.is_some(),
        label: declared.scope.label.as_ref().map(LabelTemplate::to_string),
        whitelist: patterns.whitelist,
        blacklist: patterns.blacklist,
    }
}
