//! Every method and who answers it.

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Answering, Caller, Outcome, Request, Routes};
use mgp_calls::relay::{Relay, nothing};
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView, ListKind};
use mgp_protocol::dialect::Era;
use mgp_protocol::era::{Modern, to_modern_result};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::PREFIX;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::tools::Call;
use mgp_protocol::refusal::Refusal;

use crate::operator::{Operator, tools};
use crate::pulse::Pulse;

/// Prefix of the methods about who may do what, which agents may ask some of.
const ACCESS: &str = "mgp/access/";
/// Prefix of the methods that find, register and take out servers.
const DISCOVERY: &str = "mgp/discovery/";
/// Prefix of the methods that find tools.
const TOOLS: &str = "mgp/tools/";

/// The routing table of a kernel.
#[derive(Debug)]
pub struct Table {
    /// What agents ask.
    pub relay: Arc<Relay>,
    /// What the operator asks.
    pub operator: Arc<Operator>,
    /// What is asked about health, and of the end.
    pub pulse: Arc<Pulse>,
}

impl Table {
    /// The table of a kernel with these parts.
    #[must_use]
    pub fn new(relay: Arc<Relay>, operator: Arc<Operator>, pulse: Arc<Pulse>) -> Self {
        Self {
            relay,
            operator,
            pulse,
        }
    }
}

impl Routes for Table {
    fn answer(&self, request: Request) -> Answering {
        request.caller.activity.asks(&request.method);
        if request.method.starts_with(PREFIX) {
            return self.answer_of_mgp(request);
        }
        let relay = self.relay.clone();
        if !relay.offers(&request.caller, &request.method) {
            return ready(Err(Refusal::UnknownMethod(request.method.to_string())));
        }
        match (request.caller.version.era(), &*request.method) {
            (Era::Legacy, "ping") => ready(Ok(nothing())),
            (Era::Modern, "server/discover") => ready(relay.discover(&request.caller)),
            (Era::Modern, "subscriptions/listen") => {
                Box::pin(async move { relay.listen(&request).await })
            }
            (Era::Modern, "tasks/get") => Box::pin(async move { relay.get_task(&request).await }),
            (Era::Modern, "tasks/update") => {
                Box::pin(async move { relay.update_task(&request).await })
            }
            (Era::Modern, "tasks/cancel") => {
                Box::pin(async move { relay.cancel_task(&request).await })
            }
            (Era::Legacy, "tasks/get" | "tasks/result" | "tasks/cancel") => {
                Box::pin(async move { relay.legacy_task(&request).await })
            }
            (Era::Legacy, "tasks/list") => {
                Box::pin(async move { relay.list_tasks(&request).await })
            }
            (_, "tools/list") => listed(relay, request, ListKind::Tools),
            (_, "prompts/list") => listed(relay, request, ListKind::Prompts),
            (_, "resources/list") => listed(relay, request, ListKind::Resources),
            (_, "resources/templates/list") => listed(relay, request, ListKind::Templates),
            (_, "tools/call") => match tools::meant(&request) {
                Some(method) => {
                    let answer = self.of_mgp(method);
                    Box::pin(async move { relay.answer_as_tool(&request, answer).await })
                }
                None => Box::pin(async move { relay.call_tool(&request).await }),
            },
            (_, "prompts/get") => Box::pin(async move { relay.get_prompt(&request).await }),
            (_, "resources/read") => Box::pin(async move { relay.read_resource(&request).await }),
            (Era::Legacy, "resources/subscribe") => {
                Box::pin(async move { relay.subscribe(&request).await })
            }
            (Era::Legacy, "resources/unsubscribe") => {
                Box::pin(async move { relay.unsubscribe(&request).await })
            }
            (_, "completion/complete") => Box::pin(async move { relay.complete(&request).await }),
            (Era::Legacy, "logging/setLevel") => {
                Box::pin(async move { relay.set_level(&request).await })
            }
            (_, unknown) => ready(Err(Refusal::UnknownMethod(unknown.to_owned()))),
        }
    }

    fn note(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>) {
        match method {
            "notifications/progress" => {
                if let Some(agent) = caller.standing() {
                    agent.progressed(params.unwrap_or("{}"));
                }
            }
            "notifications/initialized" | "notifications/roots/list_changed" => {
                self.relay.roots_changed(caller);
            }
            _ => tracing::debug!(agent = %caller.agent, method, "a notification nobody reads"),
        }
    }

    fn tool(&self, view: &CatalogView, name: &str, who: &Principal) -> Option<Arc<CatalogTool>> {
        let tool = self.relay.tool(view, name);
        tool.filter(|tool| self.relay.may_call(who, tool))
    }

    fn welcome(&self, caller: Arc<Caller>) -> Answering {
        ready(self.relay.welcome(&caller))
    }

    fn knows(&self, view: &CatalogView, who: &Principal) -> bool {
        self.relay.knows(view, who)
    }

    fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        self.relay.still(caller, method, params)
    }

    fn farewell(&self, agent: &Agent) {
        self.relay.subscriptions.leave(agent.connection);
        self.relay.registrar.ended(agent.connection);
        if let Some(caller) = agent.caller() {
            self.relay.roots_changed(caller);
        }
    }
}

impl Table {
    /// What `mgp/*` answers, with what every result of the caller's era has.
    fn answer_of_mgp(&self, request: Request) -> Answering {
        // The result of a tool that was called has it from where it comes.
        let own = request.method != Call::METHOD;
        let era = request.caller.version.era();
        let answering = self.of_mgp(request);
        match era {
            Era::Modern if own => {
                Box::pin(async move { answering.await.map(|result| complete(&result)) })
            }
            Era::Modern | Era::Legacy => answering,
        }
    }

    fn of_mgp(&self, request: Request) -> Answering {
        let relay = self.relay.clone();
        if request.method.starts_with(ACCESS) {
            return Box::pin(async move { relay.administer(&request).await });
        }
        if request.method.starts_with(DISCOVERY) {
            return Box::pin(async move { relay.discovery(&request).await });
        }
        if request.method.starts_with(TOOLS) {
            return Box::pin(async move { relay.find(&request).await });
        }
        let answer = self.for_mgp(&request);
        answer.unwrap_or_else(|| self.for_operator(request))
    }

    /// What MGP has for agents, too; `None` for who did not negotiate it.
    fn for_mgp(&self, request: &Request) -> Option<Answering> {
        let caller = &request.caller;
        let lifecycle = caller.operator || caller.mgp.features().contains(Features::LIFECYCLE);
        match &*request.method {
            "mgp/health/ping" if lifecycle => Some(ready(self.pulse.ping(request))),
            "mgp/health/status" if lifecycle => Some(self.pulse.clone().status(request)),
            "mgp/lifecycle/shutdown" if lifecycle => Some(ready(self.pulse.shutdown(request))),
            _ => None,
        }
    }

    fn for_operator(&self, request: Request) -> Answering {
        if !request.caller.operator {
            // The same answer as for a method that does not exist: what is there is not shown.
            return ready(Err(Refusal::UnknownMethod(request.method.to_string())));
        }
        let operator = self.operator.clone();
        match &*request.method {
            "mgp/kernel/status" => ready(operator.status(&request)),
            "mgp/kernel/stop" => ready(operator.stop()),
            "mgp/kernel/reload" => Box::pin(async move { operator.reload().await }),
            "mgp/agents/add" => Box::pin(async move { operator.add_agent(&request).await }),
            "mgp/agents/list" => ready(operator.list_agents()),
            "mgp/agents/remove" => Box::pin(async move { operator.remove_agent(&request).await }),
            "mgp/agents/token" => Box::pin(async move { operator.agent_token(&request).await }),
            "mgp/names/read" => ready(operator.read_names(&request)),
            "mgp/names/list" => ready(operator.list_names()),
            "mgp/index/search" => Box::pin(async move { operator.search(&request).await }),
            "mgp/servers/list" => Box::pin(async move { operator.list().await }),
            "mgp/servers/start" => Box::pin(async move { operator.start(&request).await }),
            "mgp/servers/wait" => Box::pin(async move { operator.wait(&request).await }),
            "mgp/servers/stop" => Box::pin(async move { operator.stop_server(&request).await }),
            "mgp/servers/restart" => Box::pin(async move { operator.restart(&request).await }),
            "mgp/servers/logs" => Box::pin(async move { operator.logs(&request).await }),
            "mgp/audit/replay" => Box::pin(async move { operator.replay(&request).await }),
            "mgp/audit/last" => ready(operator.last_record()),
            "mgp/audit/acknowledge" => {
                Box::pin(async move { operator.acknowledge(&request).await })
            }
            "mgp/approvals/list" => ready(operator.pending()),
            "mgp/approvals/approve" => Box::pin(async move { operator.approve(&request).await }),
            "mgp/approvals/deny" => Box::pin(async move { operator.deny(&request).await }),
            "mgp/permission/revoke" => {
                Box::pin(async move { operator.revoke_permission(&request).await })
            }
            "mgp/permission/grant" => {
                Box::pin(async move { operator.grant_permissions(&request).await })
            }
            unknown => ready(Err(Refusal::UnknownMethod(unknown.to_owned()))),
        }
    }
}

/// A result of 2026-07-28 says that it is one, and that it is whole (`resultType`).
fn complete(result: &[u8]) -> Bytes {
    let result = String::from_utf8_lossy(result);
    to_modern_result(&result, Modern::default()).into()
}

fn listed(relay: Arc<Relay>, request: Request, kind: ListKind) -> Answering {
    match relay.awaits_newcomers(&request.caller) {
        false => ready(relay.list(&request, kind)),
        true => Box::pin(async move { relay.list_with_newcomers(&request, kind).await }),
    }
}

fn ready(outcome: Outcome) -> Answering {
    Box::pin(std::future::ready(outcome))
}
