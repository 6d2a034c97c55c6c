//! `mgp/kernel/mcpl/*`: feature sets and scopes.

use mgp_callers::request::{Outcome, Request};
use mgp_calls::known_names;
use mgp_engine::doors::known_names::Meant;
use mgp_engine::doors::nearest::nearest_name;
use mgp_mcpl::host::HostEvent;
use mgp_mcpl_engine::feature_sets::{HeldSet, ServerSets};
use mgp_mcpl_engine::policy::SetPattern;
use mgp_mcpl_engine::scopes::template::LabelTemplate;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::mcpl::{
    FeatureSetList, Forget, Forgotten, ListedFeatureSet, McplServer, Switch, Switched,
};
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::by_operator;

use super::{Operator, json, read};

impl Operator {
    /// `mgp/kernel/mcpl/sets`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub fn list_feature_sets(&self) -> Outcome {
        let sets = self.mcpl.sets().load();
        let servers = sets.servers.iter();
        let servers = servers.map(|(server, sets)| McplServer {
            server: server.to_string(),
            sets: sets
                .sets
                .iter()
                .map(|(name, held)| listed(name, held))
                .collect(),
        });
        json(&FeatureSetList {
            servers: servers.collect(),
            unknown: self.unknown_sets(),
        })
    }

    /// What the configuration and the command line say of sets that a server which is here does not have.
    fn unknown_sets(&self) -> Vec<String> {
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
    /// Names that nobody has, unless they are said to be still to come; a disk that does not take it.
    pub async fn switch_feature_sets(&self, request: &Request) -> Outcome {
        let typed: Switch = read(request)?;
        let server = self.mcpl_server(&typed.server, !typed.yet_unknown)?;
        if typed.sets.is_empty() {
            return Err(Refusal::BadParams("no feature set is named".into()));
        }
        let patterns = typed.sets.iter().map(|set| SetPattern::parse(set));
        let patterns: Vec<SetPattern> = patterns
            .collect::<Result<_, _>>()
            .map_err(|why| Refusal::BadParams(why.to_string()))?;
        if !typed.yet_unknown && typed.enabled.is_some() {
            self.has_sets(&server, &patterns)?;
        }
        let keeper = self.mcpl.set_keeper();
        let switched = keeper.switch(&server, &patterns, typed.enabled, by_operator());
        let changed = switched
            .await
            .map_err(|why| Refusal::Broken(why.to_string()))?;
        for server in changed {
            self.mcpl.happened(&HostEvent::SetsChanged(server));
        }
        let sets = self.mcpl.sets().load();
        let (enabled, disabled) = sets
            .of(&server)
            .map(|sets| parted(sets))
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
    /// A server that nobody has; a disk that does not take it.
    pub async fn forget_scopes(&self, request: &Request) -> Outcome {
        let typed: Forget = read(request)?;
        // One that is gone may have left approvals.
        let server = self.mcpl_server(&typed.server, false)?;
        let forgotten = self.mcpl.scopes().forget(&server, typed.set.as_deref());
        json(&Forgotten {
            scopes: forgotten.await.map_err(Refusal::Broken)?,
        })
    }

    fn mcpl_server(&self, typed: &str, there: bool) -> Result<ServerId, Refusal> {
        let known = self.name_sources.known();
        let meant: Meant<ServerId> = known_names::read(known.server(typed), there)?;
        Ok(meant.it)
    }

    /// Refuses names of sets that the server does not have.
    fn has_sets(&self, server: &ServerId, patterns: &[SetPattern]) -> Result<(), Refusal> {
        let sets = self.mcpl.sets().load();
        let Some(sets) = sets.of(server) else {
            return Err(Refusal::BadParams(format!(
                "server {server} does not speak MCPL, or is not connected; `--yet-unknown` says it for later"
            )));
        };
        for pattern in patterns {
            let mut names = sets.sets.keys().map(String::as_str);
            if names.clone().any(|name| pattern.names(name).is_some()) {
                continue;
            }
            let near = nearest_name(pattern.as_str(), names.clone());
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            let known = match names.next() {
                None => "it has none".to_owned(),
                Some(_) => sets.sets.keys().cloned().collect::<Vec<_>>().join(", "),
            };
            return Err(Refusal::BadParams(format!(
                "server {server} has no feature set {}{}; its sets: {known}",
                pattern.as_str(),
                near.unwrap_or_default(),
            )));
        }
        Ok(())
    }
}

fn parted(sets: &ServerSets) -> (Vec<String>, Vec<String>) {
    let update = sets.update();
    (update.enabled, update.disabled)
}

fn listed(name: &str, held: &HeldSet) -> ListedFeatureSet {
    let patterns = held.scope.patterns();
    ListedFeatureSet {
        set: name.to_owned(),
        description: held.set.description.clone(),
        uses: held.set.uses.iter().map(ToString::to_string).collect(),
        scoped: held.set.scoped,
        rollback: held.set.rollback,
        enabled: held.enabled,
        by: held.reason.told(),
        waits: held.approved.is_some(),
        label: held.scope.label.as_ref().map(LabelTemplate::to_string),
        whitelist: patterns.whitelist,
        blacklist: patterns.blacklist,
    }
}
