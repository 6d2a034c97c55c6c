//! Every method agents may call: who may, and who answers it. What servers may send stands in the other
//! table, [`mgp_servers::link::FROM_SERVERS`].

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::agent::Agent;
use mgp_callers::agent_tap::AgentTap;
use mgp_callers::request::{Answering, Caller, Outcome, Request, Routes};
use mgp_calls::checks::access;
use mgp_calls::mcp::tasks::legacy;
use mgp_calls::mcp::{
    completion, initialize, lists, logging, prompts, resources, roots, subscriptions, tasks, tools,
};
use mgp_calls::mgp::access::AccessTool;
use mgp_calls::mgp::callback::CallbackTool;
use mgp_calls::mgp::events::EventsTool;
use mgp_calls::mgp::stream::StreamTool;
use mgp_calls::offered::{Capability, offers};
use mgp_calls::{Context, nothing};
use mgp_calls::{mcpl, mgp};
use mgp_engine::doors::nearest::nearest_name;
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView, ListKind};
use mgp_protocol::dialect::Era;
use mgp_protocol::era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::DiscoveryTool;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use mgp_servers::upstream::LegacyTask;

use crate::health::HealthMethods;
use crate::health::metrics::KernelMetrics;
use crate::health::telemetry::Tracing;
use crate::operator::{self, Operator};

/// Answered by a function of the calls, which may wait.
macro_rules! call {
    ($answer:path $(, $more:expr)?) => {
        |table, request| {
            let calls = table.calls.clone();
            Box::pin(async move { $answer(&calls, &request $(, $more)?).await })
        }
    };
}

/// Taken note of where the caller is a host of MCPL.
macro_rules! host {
    ($note:path) => {
        |table, caller, params| {
            if caller.mcpl.is_some() {
                $note(&table.calls, caller, params);
            }
        }
    };
}

/// Answered by the operator's part of the kernel, which may wait.
macro_rules! operate {
    ($answer:ident()) => {
        |table, _| {
            let operator = table.operator.clone();
            Box::pin(async move { operator.$answer().await })
        }
    };
    ($answer:ident) => {
        |table, request| {
            let operator = table.operator.clone();
            Box::pin(async move { operator.$answer(&request).await })
        }
    };
}

/// What agents may call: the method, and which clients know it; `None` for everything else.
fn from_agents(method: &str, era: Era) -> Option<Route> {
    use Capability::{Completions, Logging, Prompts, ResourceUpdates, Resources, Tools};
    use Era::{Legacy, Modern};
    Some(match (method, era) {
        ("ping", Legacy) => mcp(|_, _| ready(Ok(nothing()))),
        ("server/discover", Modern) => mcp(discover),
        ("tools/call", _) => mcp(call_tool).of(Tools).waits(tools::still),
        ("tools/list", _) => mcp(|t, r| list(t, r, ListKind::Tools)).of(Tools),
        ("prompts/get", _) => mcp(call!(prompts::get)).of(Prompts).waits(prompts::still),
        ("prompts/list", _) => mcp(|t, r| list(t, r, ListKind::Prompts)).of(Prompts),
        ("resources/read", _) => mcp(call!(resources::read))
            .of(Resources)
            .waits(resources::still),
        ("resources/list", _) => mcp(|t, r| list(t, r, ListKind::Resources)).of(Resources),
        ("resources/templates/list", _) => {
            mcp(|t, r| list(t, r, ListKind::Templates)).of(Resources)
        }
        ("resources/subscribe", Legacy) => mcp(call!(resources::subscribe)).of(ResourceUpdates),
        ("resources/unsubscribe", Legacy) => mcp(call!(resources::unsubscribe)).of(ResourceUpdates),
        ("subscriptions/listen", Modern) => mcp(call!(subscriptions::listen)),
        ("completion/complete", _) => mcp(call!(completion::complete)).of(Completions),
        ("logging/setLevel", Legacy) => mcp(call!(logging::set_level)).of(Logging),
        ("tasks/get", Modern) => mcp(call!(tasks::get)),
        ("tasks/update", Modern) => mcp(call!(tasks::update)),
        ("tasks/cancel", Modern) => mcp(call!(tasks::cancel)),
        ("tasks/get", Legacy) => mcp(call!(legacy::about, LegacyTask::Get)),
        ("tasks/result", Legacy) => mcp(call!(legacy::about, LegacyTask::Result)),
        ("tasks/cancel", Legacy) => mcp(call!(legacy::about, LegacyTask::Cancel)),
        ("tasks/list", Legacy) => mcp(call!(legacy::list)),

        ("context/beforeInference", Legacy) => mcpl(call!(mcpl::context::before_inference)),
        ("context/afterInference", Legacy) => mcpl(call!(mcpl::context::after_inference)),
        ("state/rollback", Legacy) => mcpl(call!(mcpl::state::rollback)),
        ("channels/list", Legacy) => mcpl(call!(mcpl::channels::list)),
        ("channels/open", Legacy) => mcpl(call!(mcpl::channels::open)),
        ("channels/close", Legacy) => mcpl(call!(mcpl::channels::close)),
        ("channels/publish", Legacy) => mcpl(call!(mcpl::channels::publish)),

        ("mgp/access/query", _) => access(call!(mgp::access::answer, AccessTool::Query)),
        ("mgp/access/grant", _) => access(call!(mgp::access::answer, AccessTool::Grant)),
        ("mgp/access/revoke", _) => access(call!(mgp::access::answer, AccessTool::Revoke)),
        ("mgp/access/list", _) => access(call!(mgp::access::answer, AccessTool::List)),
        ("mgp/access/explain", _) => access(call!(mgp::access::answer, AccessTool::Explain)),
        ("mgp/discovery/list", _) => discovery(call!(mgp::discovery::answer, DiscoveryTool::List)),
        ("mgp/discovery/register", _) => {
            discovery(call!(mgp::discovery::answer, DiscoveryTool::Register))
        }
        ("mgp/discovery/deregister", _) => {
            discovery(call!(mgp::discovery::answer, DiscoveryTool::Deregister))
        }
        ("mgp/stream/cancel", _) => streaming(call!(mgp::stream::answer, StreamTool::Cancel)),
        ("mgp/events/subscribe", _) => events(call!(mgp::events::answer, EventsTool::Subscribe)),
        ("mgp/events/unsubscribe", _) => {
            events(call!(mgp::events::answer, EventsTool::Unsubscribe))
        }
        ("mgp/events/replay", _) => events(call!(mgp::events::answer, EventsTool::Replay)),
        ("mgp/events/channels", _) => events(call!(mgp::events::answer, EventsTool::Channels)),
        ("mgp/tools/discover", _) => finding(call!(mgp::tools::discover)),
        ("mgp/tools/call", _) => finding(call!(tools::call_found)).relayed(),
        ("mgp/tools/request", _) => finding(call!(mgp::tools::request)),
        ("mgp/tools/session", _) => finding(call!(mgp::tools::session)),
        ("mgp/tools/session/evict", _) => finding(call!(mgp::tools::evict)),
        ("mgp/agent/ask", _) => callbacks(call!(mgp::agent::ask)),
        ("mgp/callback/respond", _) => {
            callbacks(call!(mgp::callback::answer, CallbackTool::Respond))
        }
        ("mgp/events/pending_callbacks", _) => {
            callbacks(call!(mgp::callback::answer, CallbackTool::Pending))
        }
        ("mgp/health/ping", _) => lifecycle(|t, r| ready(t.health.ping(&r))),
        ("mgp/health/status", _) => lifecycle(|t, r| t.health.clone().status(&r)),
        ("mgp/calls/show", _) => lifecycle(call!(mgp::calls::show)),
        ("mgp/lifecycle/shutdown", _) => lifecycle(|t, r| ready(t.health.shutdown(&r))),
        _ => return of_operator(method),
    })
}

/// What the operator may call, in either era; `None` for everything else.
fn of_operator(method: &str) -> Option<Route> {
    Some(match method {
        "mgp/kernel/status" => operator(operate!(status)),
        "mgp/kernel/stop" => operator(|t, _| ready(t.operator.stop())),
        "mgp/kernel/reload" => operator(operate!(reload())),
        "mgp/kernel/tree" => operator(operate!(tree())),
        "mgp/kernel/metrics" => operator(|t, r| t.metrics.clone().answer(&r)),
        "mgp/kernel/nodes/id" => operator(operate!(identity())),
        "mgp/kernel/nodes/list" => operator(operate!(list_nodes())),
        "mgp/kernel/nodes/invite" => operator(operate!(invite_node)),
        "mgp/kernel/nodes/tickets" => operator(operate!(list_tickets())),
        "mgp/kernel/nodes/withdraw" => operator(operate!(withdraw_ticket)),
        "mgp/kernel/nodes/join" => operator(operate!(join_cluster)),
        "mgp/kernel/nodes/admission" => operator(operate!(admission())),
        "mgp/kernel/nodes/approve" => operator(operate!(approve_node)),
        "mgp/kernel/nodes/refuse" => operator(operate!(refuse_node)),
        "mgp/kernel/nodes/impact" => operator(operate!(revoke_impact)),
        "mgp/kernel/nodes/revoke" => operator(operate!(revoke_node)),
        "mgp/kernel/nodes/rename" => operator(operate!(rename_node)),
        "mgp/kernel/nodes/promote" => operator(operate!(promote_node)),
        "mgp/kernel/nodes/demote" => operator(operate!(demote_node)),
        "mgp/kernel/nodes/drain" => operator(operate!(drain_node)),
        "mgp/kernel/nodes/forget" => operator(operate!(forget_nodes)),
        "mgp/kernel/nodes/leave" => operator(operate!(leave_cluster)),
        "mgp/kernel/nodes/rekey" => operator(operate!(rekey_node)),
        "mgp/kernel/nodes/recover" => operator(operate!(recover_cluster)),
        "mgp/kernel/shares/add" => operator(operate!(share)),
        "mgp/kernel/shares/remove" => operator(operate!(unshare)),
        "mgp/kernel/shares/list" => operator(|t, _| ready(t.operator.list_shares())),
        "mgp/kernel/state/log" => operator(call!(mcpl::state::log)),
        "mgp/kernel/state/rollback" => operator(call!(mcpl::state::roll_back_for_operator)),
        "mgp/kernel/sets/list" => operator(operate!(list_sets())),
        "mgp/kernel/mcpl/sets" => operator(|t, _| ready(t.operator.list_feature_sets())),
        "mgp/kernel/mcpl/switch" => operator(operate!(switch_feature_sets)),
        "mgp/kernel/mcpl/forget" => operator(operate!(forget_scopes)),
        "mgp/kernel/console/link" => operator(|t, _| ready(t.operator.console_link())),
        "mgp/kernel/console/end" => operator(|t, _| ready(t.operator.end_console())),
        "mgp/kernel/recorder/follow" => operator(|t, r| {
            let (calls, logins) = (t.calls.clone(), t.operator.logins.clone());
            Box::pin(async move { mgp::recorder::follow(&calls, &logins, &r).await })
        }),
        "mgp/kernel/recorder/play" => operator(|t, r| {
            let (calls, logins) = (t.calls.clone(), t.operator.logins.clone());
            Box::pin(async move { mgp::recorder::play(&calls, &logins, &r).await })
        }),
        "mgp/kernel/lan/on" => operator(operate!(lan_on())),
        "mgp/kernel/lan/off" => operator(operate!(lan_off())),
        "mgp/kernel/lan/status" => operator(operate!(lan_status())),
        "mgp/agents/add" => operator(operate!(add_agent)),
        "mgp/agents/list" => operator(|t, _| ready(t.operator.list_agents())),
        "mgp/agents/remove" => operator(operate!(remove_agent)),
        "mgp/agents/token" => operator(operate!(agent_token)),
        "mgp/names/read" => operator(|t, r| ready(t.operator.read_names(&r))),
        "mgp/names/list" => operator(operate!(list_names)),
        "mgp/index/search" => operator(operate!(search)),
        "mgp/servers/list" => operator(operate!(list())),
        "mgp/servers/start" => operator(operate!(start)),
        "mgp/servers/wait" => operator(operate!(wait)),
        "mgp/servers/stop" => operator(operate!(stop_server)),
        "mgp/servers/restart" => operator(operate!(restart)),
        "mgp/servers/logs" => operator(operate!(logs)),
        "mgp/servers/pins/list" => operator(operate!(list_pins)),
        "mgp/servers/pins/show" => operator(operate!(show_pin)),
        "mgp/audit/replay" => operator(operate!(replay)),
        "mgp/audit/find" => operator(operate!(find_records)),
        "mgp/audit/verify" => operator(operate!(verify_log)),
        "mgp/audit/last" => operator(|t, _| ready(t.operator.last_record())),
        "mgp/audit/acknowledge" => operator(operate!(acknowledge)),
        "mgp/approvals/list" => operator(operate!(pending())),
        "mgp/approvals/approve" => operator(operate!(approve)),
        "mgp/approvals/answer" => operator(operate!(answer_question)),
        "mgp/approvals/deny" => operator(operate!(deny)),
        "mgp/permission/revoke" => operator(operate!(revoke_permission)),
        "mgp/permission/grant" => operator(operate!(grant_permissions)),
        _ => return None,
    })
}

/// What agents tell: the notification, and who takes note of it; `None` for what nobody reads.
fn told_by_agents(method: &str) -> Option<Heard> {
    Some(match method {
        "notifications/progress" => |_, caller, params| {
            if let Some(agent) = caller.standing() {
                agent.progressed(params.unwrap_or("{}"));
            }
        },
        "notifications/mgp.stream.pace" => |table, caller, params| {
            mgp::stream::paced(&table.calls, caller, params);
        },
        "notifications/mgp.stream.gap" => |table, caller, params| {
            mgp::stream::missed(&table.calls, caller, params);
        },
        "notifications/initialized" => |table, caller, _| {
            roots::changed(&table.calls, caller);
            if let Some(agent) = caller.standing() {
                table.calls.mcpl_agents.refresh_one(&agent);
            }
        },
        "notifications/roots/list_changed" => {
            |table, caller, _| roots::changed(&table.calls, caller)
        }
        of_mcpl => return told_by_hosts(of_mcpl),
    })
}

/// What agents tell that are hosts of MCPL; for all others nobody reads it.
fn told_by_hosts(method: &str) -> Option<Heard> {
    Some(match method {
        "featureSets/update" => host!(mcpl::feature_sets::update),
        "context/afterInference" => host!(mcpl::context::inferred),
        "channels/publish" => host!(mcpl::channels::published),
        "channels/outgoing/chunk" => host!(mcpl::channels::outgoing_chunk),
        "channels/outgoing/complete" => host!(mcpl::channels::outgoing_complete),
        "inference/chunk" => host!(mcpl::inference::chunk),
        _ => return None,
    })
}

type Handler = fn(&Routing, Request) -> Answering;
type Heard = fn(&Routing, &Arc<Caller>, Option<&str>);
type Still = fn(&Context, &Caller, &str) -> Result<(), Refusal>;

/// A method that may be called.
struct Route {
    who: RouteAudience,
    /// What the one server of a view must be able to do.
    of: Option<Capability>,
    /// Its results are the kernel's own, which come without what each result of the caller's era has.
    own: bool,
    handler: Handler,
    /// Asked again when the call has waited for its client.
    still: Option<Still>,
}

/// For whom a method is there. To all others it is one that does not exist: what is there is not shown.
enum RouteAudience {
    Everybody,
    /// Who agreed to this, and the operator.
    Agreed(Features),
    /// Who agreed to discovery, or may register servers.
    Discovery,
    /// Agents that are hosts of MCPL.
    McplHosts,
    Operator,
}

impl RouteAudience {
    fn admits(&self, calls: &Context, caller: &Caller) -> bool {
        match self {
            Self::Everybody => true,
            Self::Agreed(features) => caller.operator || caller.mgp.features().contains(*features),
            Self::Discovery => mgp::discovery::offered(calls, caller),
            Self::McplHosts => caller.mcpl.is_some(),
            Self::Operator => caller.operator,
        }
    }
}

impl Route {
    const fn new(who: RouteAudience, own: bool, handler: Handler) -> Self {
        Self {
            who,
            of: None,
            own,
            handler,
            still: None,
        }
    }

    const fn of(mut self, capability: Capability) -> Self {
        self.of = Some(capability);
        self
    }

    const fn waits(mut self, still: Still) -> Self {
        self.still = Some(still);
        self
    }

    /// Its result comes from a server.
    const fn relayed(mut self) -> Self {
        self.own = false;
        self
    }

    fn is_for(&self, calls: &Context, caller: &Caller) -> bool {
        let offered = self.of.is_none_or(|of| offers(calls, caller, of));
        offered && self.who.admits(calls, caller)
    }
}

const fn mcp(handler: Handler) -> Route {
    Route::new(RouteAudience::Everybody, false, handler)
}

const fn mcpl(handler: Handler) -> Route {
    Route::new(RouteAudience::McplHosts, false, handler)
}

const fn access(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Agreed(Features::ACCESS_CONTROL),
        true,
        handler,
    )
}

const fn discovery(handler: Handler) -> Route {
    Route::new(RouteAudience::Discovery, true, handler)
}

const fn events(handler: Handler) -> Route {
    Route::new(RouteAudience::Agreed(Features::EVENTS), true, handler)
}

const fn finding(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Agreed(Features::TOOL_DISCOVERY),
        true,
        handler,
    )
}

const fn streaming(handler: Handler) -> Route {
    Route::new(RouteAudience::Agreed(Features::STREAMING), true, handler)
}

const fn lifecycle(handler: Handler) -> Route {
    Route::new(RouteAudience::Agreed(Features::LIFECYCLE), true, handler)
}

const fn callbacks(handler: Handler) -> Route {
    Route::new(RouteAudience::Agreed(Features::CALLBACKS), true, handler)
}

const fn operator(handler: Handler) -> Route {
    Route::new(RouteAudience::Operator, true, handler)
}

/// The routing table of a kernel.
#[derive(Debug)]
pub struct Routing {
    /// What agents ask.
    pub calls: Arc<Context>,
    /// What the operator asks.
    pub operator: Arc<Operator>,
    /// What is asked about health, and of the end.
    pub health: Arc<HealthMethods>,
    /// What is counted.
    pub metrics: Arc<KernelMetrics>,
    /// Begins the spans of requests.
    pub tracing: Tracing,
}

impl Routing {
    fn routed(&self, mut request: Request) -> Answering {
        let (activity, came) = (&request.caller.activity, request.exchange.began());
        activity.asks(&request.method, came);
        let era = request.caller.version.era();
        let route = from_agents(&request.method, era);
        let Some(route) = route.filter(|route| route.is_for(&self.calls, &request.caller)) else {
            return ready(Err(Refusal::UnknownMethod(request.method.to_string())));
        };
        self.metrics.requests.one_more(&request.method);
        let sampled = self.tracing.begin(&mut request);
        let answering = (route.handler)(self, request);
        let answering = match sampled {
            Some(sampled) => sampled.until(answering),
            None => answering,
        };
        match era {
            Era::Modern if route.own => {
                Box::pin(async move { answering.await.map(|result| complete(&result)) })
            }
            Era::Modern | Era::Legacy => answering,
        }
    }
}

impl Routes for Routing {
    fn answer(&self, request: Request) -> Answering {
        AgentTap::around(request, |request| self.routed(request))
    }

    fn note(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>) {
        if let Some(tap) = AgentTap::of_caller(caller) {
            tap.told(method, params);
        }
        match told_by_agents(method) {
            Some(note) => note(self, caller, params),
            None => tracing::debug!(agent = %caller.agent, method, "a notification nobody reads"),
        }
    }

    fn tool(&self, view: &CatalogView, name: &str, who: &Principal) -> Option<Arc<CatalogTool>> {
        let tool = self.calls.tool(view, name);
        tool.filter(|tool| access::may_call(&self.calls, who, tool))
    }

    fn all_tools(&self, caller: Arc<Caller>) -> Answering<Result<Vec<Bytes>, Refusal>> {
        let calls = self.calls.clone();
        Box::pin(async move { lists::all_tools(&calls, &caller).await })
    }

    fn welcome(&self, caller: Arc<Caller>) -> Answering {
        let answer = ready(initialize::initialize(&self.calls, &caller));
        AgentTap::around_welcome(caller, answer)
    }

    fn knows(&self, view: &CatalogView, who: &Principal) -> bool {
        access::knows(&self.calls, view, who)
    }

    fn nearest_server(&self, typed: &ServerId) -> Option<ServerId> {
        let servers = self.calls.servers.load();
        let near = nearest_name(typed.as_str(), servers.keys().map(ServerId::as_str));
        near.map(ServerId::new)
    }

    fn lapse(&self) -> Option<String> {
        access::lapse(&self.calls)
    }

    fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        let route = from_agents(method, caller.version.era());
        match route.and_then(|route| route.still) {
            Some(still) => still(&self.calls, caller, params),
            None => Ok(()),
        }
    }

    fn farewell(&self, agent: &Agent) {
        self.calls.subscriptions.leave(agent.connection);
        self.calls.events.leave(agent.connection);
        self.calls.cut_results.leave(agent.connection);
        self.calls.registrar.ended(agent.connection);
        self.calls
            .states
            .session_ended(agent.id(), agent.connection);
        self.calls.mcpl_agents.leave(agent.connection);
        if let Some(caller) = agent.caller() {
            roots::changed(&self.calls, caller);
        }
    }
}

/// A call of a tool: of a server's, or of one that stands for a method of the operator's.
fn call_tool(table: &Routing, request: Request) -> Answering {
    let calls = table.calls.clone();
    let meant = operator::tools::meant(&request);
    let route = meant.and_then(|meant| {
        let route = from_agents(&meant.method, meant.caller.version.era())?;
        Some((route, meant))
    });
    match route {
        Some((route, meant)) => {
            let answer = (route.handler)(table, meant);
            Box::pin(async move { tools::answer_as_tool(&calls, &request, answer).await })
        }
        None => Box::pin(async move { tools::call(&calls, &request).await }),
    }
}

fn list(table: &Routing, request: Request, kind: ListKind) -> Answering {
    let calls = table.calls.clone();
    match lists::awaits_newcomers(&calls, &request.caller) {
        false => ready(lists::list(&calls, &request, kind)),
        true => Box::pin(async move { lists::list_with_newcomers(&calls, &request, kind).await }),
    }
}

fn discover(table: &Routing, request: Request) -> Answering {
    ready(initialize::discover(&table.calls, &request.caller))
}

/// A result of 2026-07-28 says that it is one, and that it is whole (`resultType`).
fn complete(result: &[u8]) -> Bytes {
    let result = String::from_utf8_lossy(result);
    era::to_modern_result(&result, era::Modern::default()).into()
}

fn ready(outcome: Outcome) -> Answering {
    Box::pin(std::future::ready(outcome))
}
