//! The table of all methods that agents may call: audience and handler of each. Methods of servers are in the
//! other table, [`mgp_servers::link::SERVER_METHODS`].

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use mgp_callers::AgentTap;
use mgp_callers::agent::Agent;
use mgp_callers::request::{AnswerFuture, Caller, Icon, Outcome, Request, Routes};
use mgp_calls::checks::access;
use mgp_calls::icons;
use mgp_calls::mcp::tasks::legacy;
use mgp_calls::mcp::{
    completion, extensions, initialize, lists, logging, prompts, resources, roots, skills,
    subscriptions, tasks, tools,
};
use mgp_calls::mgp::access::AccessTool;
use mgp_calls::mgp::callback::CallbackTool;
use mgp_calls::mgp::events::EventsTool;
use mgp_calls::mgp::stream::StreamTool;
use mgp_calls::unoffered_capabilities::{Capability, is_offered};
use mgp_calls::{Context, empty_result};
use mgp_calls::{mcpl, mgp};
use mgp_engine::doors::suggestions::nearest_name;
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView, ListKind};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::DiscoveryTool;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions;
use mgp_servers::upstream::LegacyTask;

use crate::health::HealthMethods;
use crate::health::metrics::KernelMetrics;
use crate::health::telemetry::Tracing;
use crate::operator::{self, Operator};

/// Answered asynchronously by a function of `mgp_calls`.
macro_rules! call {
    ($answer:path $(, $more:expr)?) => {
        |table, request| {
            let calls = table.calls.clone();
            Box::pin(async move { $answer(&calls, &request $(, $more)?).await })
        }
    };
}

/// Handled if the caller is an MCPL host.
macro_rules! host {
    ($note:path) => {
        |table, caller, params| {
            if caller.mcpl.is_some() {
                $note(&table.calls, caller, params);
            }
        }
    };
}

/// Answered asynchronously by the operator's methods.
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

/// Methods of agents, by protocol family; `None` for unknown ones.
fn agent_route(method: &str, family: ProtocolFamily) -> Option<Route> {
    use Capability::{Completions, Logging, Prompts, ResourceUpdates, Resources, Tools};
    use ProtocolFamily::{Legacy, Stateless};
    Some(match (method, family) {
        ("ping", Legacy) => mcp_route(|_, _| ready_outcome(Ok(empty_result()))),
        ("server/discover", Stateless) => mcp_route(discover),
        ("tools/call", _) => mcp_route(call_tool)
            .with_capability(Tools)
            .with_recheck(tools::recheck),
        ("tools/list", _) => mcp_route(|t, r| list(t, r, ListKind::Tools)).with_capability(Tools),
        ("prompts/get", _) => mcp_route(call!(prompts::get))
            .with_capability(Prompts)
            .with_recheck(prompts::recheck),
        ("prompts/list", _) => {
            mcp_route(|t, r| list(t, r, ListKind::Prompts)).with_capability(Prompts)
        }
        ("resources/read", _) => mcp_route(call!(resources::read))
            .with_capability(Resources)
            .with_recheck(resources::recheck),
        ("resources/list", _) => {
            mcp_route(|t, r| list(t, r, ListKind::Resources)).with_capability(Resources)
        }
        ("resources/templates/list", _) => {
            mcp_route(|t, r| list(t, r, ListKind::Templates)).with_capability(Resources)
        }
        ("resources/subscribe", Legacy) => {
            mcp_route(call!(resources::subscribe)).with_capability(ResourceUpdates)
        }
        ("resources/unsubscribe", Legacy) => {
            mcp_route(call!(resources::unsubscribe)).with_capability(ResourceUpdates)
        }
        ("subscriptions/listen", Stateless) => mcp_route(call!(subscriptions::listen)),
        ("completion/complete", _) => {
            mcp_route(call!(completion::complete)).with_capability(Completions)
        }
        ("logging/setLevel", Legacy) => {
            mcp_route(call!(logging::set_level)).with_capability(Logging)
        }
        ("tasks/get", Stateless) => mcp_route(call!(tasks::get)),
        ("tasks/update", Stateless) => mcp_route(call!(tasks::update)),
        ("tasks/cancel", Stateless) => mcp_route(call!(tasks::cancel)),
        ("tasks/get", Legacy) => mcp_route(call!(legacy::handle_task_request, LegacyTask::Get)),
        ("tasks/result", Legacy) => {
            mcp_route(call!(legacy::handle_task_request, LegacyTask::Result))
        }
        ("tasks/cancel", Legacy) => {
            mcp_route(call!(legacy::handle_task_request, LegacyTask::Cancel))
        }
        ("tasks/list", Legacy) => mcp_route(call!(legacy::list)),

        ("mgp/access/query", _) => access_route(call!(mgp::access::answer, AccessTool::Query)),
        ("mgp/access/grant", _) => access_route(call!(mgp::access::answer, AccessTool::Grant)),
        ("mgp/access/revoke", _) => access_route(call!(mgp::access::answer, AccessTool::Revoke)),
        ("mgp/access/list", _) => access_route(call!(mgp::access::answer, AccessTool::List)),
        ("mgp/access/explain", _) => access_route(call!(mgp::access::answer, AccessTool::Explain)),
        ("mgp/discovery/list", _) => {
            discovery_route(call!(mgp::discovery::answer, DiscoveryTool::List))
        }
        ("mgp/discovery/register", _) => {
            discovery_route(call!(mgp::discovery::answer, DiscoveryTool::Register))
        }
        ("mgp/discovery/deregister", _) => {
            discovery_route(call!(mgp::discovery::answer, DiscoveryTool::Deregister))
        }
        ("mgp/stream/cancel", _) => streaming_route(call!(mgp::stream::answer, StreamTool::Cancel)),
        ("mgp/events/subscribe", _) => {
            events_route(call!(mgp::events::answer, EventsTool::Subscribe))
        }
        ("mgp/events/unsubscribe", _) => {
            events_route(call!(mgp::events::answer, EventsTool::Unsubscribe))
        }
        ("mgp/events/replay", _) => events_route(call!(mgp::events::answer, EventsTool::Replay)),
        ("mgp/events/channels", _) => {
            events_route(call!(mgp::events::answer, EventsTool::Channels))
        }
        ("mgp/tools/discover", _) => tool_discovery_route(call!(mgp::tools::discover)),
        ("mgp/tools/call", _) => tool_discovery_route(call!(tools::call_found_tool)).into_relayed(),
        ("mgp/tools/request", _) => tool_discovery_route(call!(mgp::tools::request)),
        ("mgp/tools/session", _) => tool_discovery_route(call!(mgp::tools::session)),
        ("mgp/tools/session/evict", _) => tool_discovery_route(call!(mgp::tools::evict)),
        ("mgp/agent/ask", _) => callbacks_route(call!(mgp::agent::ask)),
        ("mgp/callback/respond", _) => {
            callbacks_route(call!(mgp::callback::answer, CallbackTool::Respond))
        }
        ("mgp/events/pending_callbacks", _) => {
            callbacks_route(call!(mgp::callback::answer, CallbackTool::Pending))
        }
        ("mgp/health/ping", _) => lifecycle_route(|t, r| ready_outcome(t.health.ping(&r))),
        ("mgp/health/status", _) => lifecycle_route(|t, r| t.health.clone().status(&r)),
        ("mgp/calls/show", _) => lifecycle_route(call!(mgp::calls::show)),
        ("mgp/lifecycle/shutdown", _) => {
            lifecycle_route(|t, r| ready_outcome(t.health.shutdown(&r)))
        }
        _ => {
            return skills_method(method)
                .or_else(|| mcpl_method(method, family))
                .or_else(|| operator_route(method));
        }
    })
}

/// Methods of MCP Live, which needs a connection that lasts.
fn mcpl_method(method: &str, family: ProtocolFamily) -> Option<Route> {
    if family != ProtocolFamily::Legacy {
        return None;
    }
    Some(match method {
        "context/beforeInference" => mcpl_route(call!(mcpl::context::before_inference)),
        "context/afterInference" => mcpl_route(call!(mcpl::context::after_inference)),
        "featureSets/update" => mcpl_route(call!(mcpl::feature_sets::grant)),
        "mcpl/manifest" => mcpl_route(call!(mcpl::feature_sets::manifest)),
        "state/rollback" => mcpl_route(call!(mcpl::state::rollback)),
        "channels/list" => mcpl_route(call!(mcpl::channels::list)),
        "channels/open" => mcpl_route(call!(mcpl::channels::open)),
        "channels/close" => mcpl_route(call!(mcpl::channels::close)),
        "channels/publish" => mcpl_route(call!(mcpl::channels::publish)),
        _ => return None,
    })
}

/// Methods of skills (SEP-2640).
fn skills_method(method: &str) -> Option<Route> {
    Some(match method {
        "skills/list" => skills_route(call!(skills::list)),
        "skills/get" => skills_route(call!(skills::get)),
        "resources/directory/read" => skills_route(call!(skills::read_directory)),
        _ => return None,
    })
}

/// Methods of the operator, in both protocol families; `None` for unknown ones.
fn operator_route(method: &str) -> Option<Route> {
    Some(match method {
        "mgp/kernel/status" => operator(operate!(status)),
        "mgp/kernel/stop" => operator(|t, _| ready_outcome(t.operator.stop())),
        "mgp/kernel/upgrade" => operator(operate!(upgrade)),
        "mgp/kernel/reload" => operator(operate!(reload())),
        "mgp/kernel/tree" => operator(operate!(tree())),
        "mgp/kernel/metrics" => operator(|t, r| t.metrics.clone().handle(&r)),
        "mgp/kernel/nodes/id" => operator(operate!(identity())),
        "mgp/kernel/nodes/list" => operator(operate!(list_nodes())),
        "mgp/kernel/nodes/invite" => operator(operate!(invite_node)),
        "mgp/kernel/nodes/tickets" => operator(operate!(list_tickets())),
        "mgp/kernel/nodes/withdraw" => operator(operate!(withdraw_ticket)),
        "mgp/kernel/nodes/join" => operator(operate!(join_cluster)),
        "mgp/kernel/nodes/admission" => operator(operate!(admission_status())),
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
        "mgp/kernel/shares/list" => operator(|t, _| ready_outcome(t.operator.list_shares())),
        "mgp/kernel/state/log" => operator(call!(mcpl::state::state_log)),
        "mgp/kernel/state/rollback" => operator(call!(mcpl::state::roll_back_for_operator)),
        "mgp/kernel/groups/list" => operator(call!(mgp::groups::list)),
        "mgp/kernel/sets/list" => operator(operate!(list_sets())),
        "mgp/kernel/mcpl/sets" => operator(|t, _| ready_outcome(t.operator.list_feature_sets())),
        "mgp/kernel/mcpl/switch" => operator(operate!(switch_feature_sets)),
        "mgp/kernel/mcpl/forget" => operator(operate!(forget_scopes)),
        "mgp/kernel/console/link" => operator(|t, _| ready_outcome(t.operator.console_link())),
        "mgp/kernel/console/end" => {
            operator(|t, _| ready_outcome(t.operator.close_console_sessions()))
        }
        "mgp/kernel/recorder/follow" => operator(call!(mgp::recorder::follow)),
        "mgp/kernel/recorder/play" => operator(call!(mgp::recorder::play)),
        "mgp/kernel/lan/on" => operator(operate!(enable_lan())),
        "mgp/kernel/lan/off" => operator(operate!(disable_lan())),
        "mgp/kernel/lan/status" => operator(operate!(lan_status())),
        "mgp/agents/add" => operator(operate!(add_agent)),
        "mgp/agents/list" => operator(|t, _| ready_outcome(t.operator.list_agents())),
        "mgp/agents/remove" => operator(operate!(remove_agent)),
        "mgp/agents/token" => operator(operate!(agent_token)),
        "mgp/names/read" => operator(|t, r| ready_outcome(t.operator.resolve_names(&r))),
        "mgp/names/list" => operator(operate!(list_names)),
        "mgp/index/search" => operator(|table, request| {
            let (operator, calls) = (table.operator.clone(), table.calls.clone());
            Box::pin(async move { operator.search(&calls, &request).await })
        }),
        "mgp/servers/list" => operator(operate!(list_servers())),
        "mgp/servers/start" => operator(operate!(start_server)),
        "mgp/servers/wait" => operator(operate!(wait_for_server)),
        "mgp/servers/stop" => operator(operate!(stop_server)),
        "mgp/servers/restart" => operator(operate!(restart_server)),
        "mgp/servers/logs" => operator(operate!(logs)),
        "mgp/servers/pins/list" => operator(operate!(list_pins)),
        "mgp/servers/pins/show" => operator(operate!(show_pin)),
        "mgp/servers/pins/confirm" => operator(operate!(confirm_effects)),
        "mgp/servers/pins/scan" => operator(operate!(scan_definitions)),
        "mgp/audit/replay" => operator(operate!(replay)),
        "mgp/audit/find" => operator(operate!(find_records)),
        "mgp/audit/verify" => operator(operate!(verify_log)),
        "mgp/audit/last" => operator(|t, _| ready_outcome(t.operator.last_record())),
        "mgp/audit/acknowledge" => operator(operate!(acknowledge)),
        "mgp/approvals/list" => operator(call!(mgp::approvals::list)),
        "mgp/approvals/approve" => operator(operate!(approve)),
        "mgp/approvals/answer" => operator(operate!(answer_pending)),
        "mgp/approvals/deny" => operator(operate!(deny)),
        "mgp/permission/revoke" => operator(operate!(revoke_permission)),
        "mgp/permission/grant" => operator(operate!(grant_permissions)),
        _ => return None,
    })
}

/// Handlers of agents' notifications; `None` for those that are ignored.
fn agent_notification_handler(method: &str) -> Option<NotificationHandler> {
    Some(match method {
        "notifications/progress" => |_, caller, params| {
            if let Some(agent) = caller.live_connection() {
                agent.handle_progress(params.unwrap_or("{}"));
            }
        },
        "notifications/mgp.stream.pace" => |table, caller, params| {
            mgp::stream::handle_pace(&table.calls, caller, params);
        },
        "notifications/mgp.stream.gap" => |table, caller, params| {
            mgp::stream::handle_gap(&table.calls, caller, params);
        },
        "notifications/initialized" => |table, caller, _| {
            roots::handle_roots_changed(&table.calls, caller);
            if let Some(agent) = caller.live_connection() {
                table.calls.mcpl_agents.refresh_agent(&agent);
            }
        },
        "notifications/roots/list_changed" => {
            |table, caller, _| roots::handle_roots_changed(&table.calls, caller)
        }
        of_mcpl => return host_notification_handler(of_mcpl),
    })
}

/// Handlers of notifications from MCPL hosts; those of other agents are ignored.
fn host_notification_handler(method: &str) -> Option<NotificationHandler> {
    Some(match method {
        "featureSets/update" => host!(mcpl::feature_sets::update),
        "context/afterInference" => host!(mcpl::context::handle_inference_finished),
        "inference/lifecycle" => host!(mcpl::context::handle_phase),
        "channels/publish" => host!(mcpl::channels::handle_publish),
        "channels/outgoing/chunk" => host!(mcpl::channels::handle_outgoing_chunk),
        "channels/outgoing/complete" => host!(mcpl::channels::handle_outgoing_complete),
        "inference/chunk" => host!(mcpl::inference::handle_chunk),
        _ => return None,
    })
}

/// How requests of extensions are counted: their methods are not the kernel's, and unbounded.
const EXTENSION: &str = "extension";

/// The route of a method that the kernel does not know, if a server has it for this caller.
fn extension_route(calls: &Context, request: &Request) -> Option<Route> {
    extensions::find_server(calls, &request.caller, &request.method)?;
    Some(mcp_route(call!(extensions::relay)))
}

type Handler = fn(&RoutingTable, Request) -> AnswerFuture;
type NotificationHandler = fn(&RoutingTable, &Arc<Caller>, Option<&str>);
type Recheck = fn(&Context, &Caller, &str) -> Result<(), Refusal>;

struct Route {
    audience: RouteAudience,
    /// What the single server of a view must support.
    capability: Option<Capability>,
    /// Results that the kernel makes lack the members that each result of the caller's protocol has.
    is_kernel_result: bool,
    handler: Handler,
    /// Repeats the checks when a call resumes after waiting for its client.
    recheck: Option<Recheck>,
}

/// The callers that may use a method. For all others it does not exist, so that nothing is disclosed.
enum RouteAudience {
    Everybody,
    /// Clients that negotiated these features, and the operator.
    Negotiated(Features),
    /// Clients that negotiated discovery or may register servers.
    Discovery,
    /// Clients of a version with skills that have a server with them, and the operator.
    Skills,
    /// Agents that are MCPL hosts.
    McplHosts,
    Operator,
}

impl RouteAudience {
    fn includes(&self, calls: &Context, caller: &Caller) -> bool {
        match self {
            Self::Everybody => true,
            Self::Negotiated(features) => {
                caller.operator || caller.mgp.features().contains(*features)
            }
            Self::Discovery => mgp::discovery::is_offered(calls, caller),
            Self::Skills => skills::is_offered(calls, caller),
            Self::McplHosts => caller.mcpl.is_some(),
            Self::Operator => caller.operator,
        }
    }
}

impl Route {
    const fn new(audience: RouteAudience, is_kernel_result: bool, handler: Handler) -> Self {
        Self {
            audience,
            capability: None,
            is_kernel_result,
            handler,
            recheck: None,
        }
    }

    const fn with_capability(mut self, capability: Capability) -> Self {
        self.capability = Some(capability);
        self
    }

    const fn with_recheck(mut self, recheck: Recheck) -> Self {
        self.recheck = Some(recheck);
        self
    }

    /// The result comes from a server.
    const fn into_relayed(mut self) -> Self {
        self.is_kernel_result = false;
        self
    }

    fn is_visible_to(&self, calls: &Context, caller: &Caller) -> bool {
        let offered = self
            .capability
            .is_none_or(|of| is_offered(calls, caller, of));
        offered && self.audience.includes(calls, caller)
    }
}

const fn mcp_route(handler: Handler) -> Route {
    Route::new(RouteAudience::Everybody, false, handler)
}

const fn skills_route(handler: Handler) -> Route {
    Route::new(RouteAudience::Skills, false, handler)
}

const fn mcpl_route(handler: Handler) -> Route {
    Route::new(RouteAudience::McplHosts, false, handler)
}

const fn access_route(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Negotiated(Features::ACCESS_CONTROL),
        true,
        handler,
    )
}

const fn discovery_route(handler: Handler) -> Route {
    Route::new(RouteAudience::Discovery, true, handler)
}

const fn events_route(handler: Handler) -> Route {
    Route::new(RouteAudience::Negotiated(Features::EVENTS), true, handler)
}

const fn tool_discovery_route(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Negotiated(Features::TOOL_DISCOVERY),
        true,
        handler,
    )
}

const fn streaming_route(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Negotiated(Features::STREAMING),
        true,
        handler,
    )
}

const fn lifecycle_route(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Negotiated(Features::LIFECYCLE),
        true,
        handler,
    )
}

const fn callbacks_route(handler: Handler) -> Route {
    Route::new(
        RouteAudience::Negotiated(Features::CALLBACKS),
        true,
        handler,
    )
}

const fn operator(handler: Handler) -> Route {
    Route::new(RouteAudience::Operator, true, handler)
}

#[derive(Debug)]
pub(crate) struct RoutingTable {
    pub(crate) calls: Arc<Context>,
    pub(crate) operator: Arc<Operator>,
    pub(crate) health: Arc<HealthMethods>,
    pub(crate) metrics: Arc<KernelMetrics>,
    /// Starts the spans of requests.
    pub(crate) tracing: Tracing,
}

impl RoutingTable {
    fn dispatch(&self, mut request: Request) -> AnswerFuture {
        let (activity, started_at) = (&request.caller.activity, request.call.started_at());
        activity.record_request(&request.method, started_at);
        let family = request.caller.version.family();
        let route = agent_route(&request.method, family);
        let is_of_extension = route.is_none();
        let route = route.or_else(|| extension_route(&self.calls, &request));
        let Some(route) = route.filter(|route| route.is_visible_to(&self.calls, &request.caller))
        else {
            return ready_outcome(Err(Refusal::UnknownMethod(request.method.to_string())));
        };
        self.metrics.requests.increment(match is_of_extension {
            true => EXTENSION,
            false => &request.method,
        });
        let sampled = self.tracing.start_span(&mut request);
        let answer = (route.handler)(self, request);
        let answer = match sampled {
            Some(sampled) => sampled.wrap(answer),
            None => answer,
        };
        match family {
            ProtocolFamily::Stateless if route.is_kernel_result => {
                Box::pin(async move { answer.await.map(|result| add_result_type(&result)) })
            }
            ProtocolFamily::Stateless | ProtocolFamily::Legacy => answer,
        }
    }
}

impl Routes for RoutingTable {
    fn answer(&self, request: Request) -> AnswerFuture {
        AgentTap::wrap_answer(request, |request| self.dispatch(request))
    }

    fn handle_notification(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>) {
        if let Some(tap) = AgentTap::for_caller(caller) {
            tap.record_notification(method, params);
        }
        match agent_notification_handler(method) {
            Some(note) => note(self, caller, params),
            None => extensions::relay_notification(&self.calls, caller, method, params),
        }
    }

    fn find_tool(
        &self,
        view: &CatalogView,
        name: &str,
        who: &Principal,
    ) -> Option<Arc<CatalogTool>> {
        let tool = self.calls.tool(view, name);
        tool.filter(|tool| access::can_call(&self.calls, who, tool))
    }

    fn all_tools(&self, caller: Arc<Caller>) -> AnswerFuture<Result<Vec<Bytes>, Refusal>> {
        let calls = self.calls.clone();
        Box::pin(async move { lists::all_tools(&calls, &caller).await })
    }

    fn initialize(&self, caller: Arc<Caller>) -> AnswerFuture {
        let answer = ready_outcome(initialize::initialize(&self.calls, &caller));
        AgentTap::wrap_initialize(caller, answer)
    }

    fn icon(&self, name: &str) -> AnswerFuture<Option<Icon>> {
        let (calls, name) = (self.calls.clone(), name.to_owned());
        Box::pin(async move { icons::load(&calls, &name).await })
    }

    fn is_view_known(&self, view: &CatalogView, who: &Principal) -> bool {
        access::is_view_known(&self.calls, view, who)
    }

    fn nearest_server(&self, typed: &ServerId) -> Option<ServerId> {
        let servers = self.calls.servers.load();
        let near = nearest_name(typed.as_str(), servers.keys().map(ServerId::as_str));
        near.map(ServerId::new)
    }

    fn foreign_closure_reason(&self) -> Option<String> {
        access::foreign_closure_reason(&self.calls)
    }

    fn recheck(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal> {
        let route = agent_route(method, caller.version.family());
        match route.and_then(|route| route.recheck) {
            Some(recheck) => recheck(&self.calls, caller, params),
            None => Ok(()),
        }
    }

    fn handle_disconnect(&self, agent: &Agent) {
        self.calls.subscriptions.remove_connection(agent.connection);
        self.calls.events.remove_connection(agent.connection);
        self.calls
            .truncated_results
            .remove_connection(agent.connection);
        self.calls.registrar.end_session_servers(agent.connection);
        self.calls
            .states
            .session_ended(agent.id(), agent.connection);
        self.calls.mcpl_agents.remove(agent.connection);
        if let Some(caller) = agent.caller() {
            roots::handle_roots_changed(&self.calls, caller);
        }
    }
}

/// Calls a tool of a server, or one that maps to a method of the operator.
fn call_tool(table: &RoutingTable, request: Request) -> AnswerFuture {
    let calls = table.calls.clone();
    let method_request = operator::tools::as_method_request(&request);
    let route = method_request.and_then(|method_request| {
        let route = agent_route(
            &method_request.method,
            method_request.caller.version.family(),
        )?;
        Some((route, method_request))
    });
    match route {
        Some((route, method_request)) => {
            let answer = (route.handler)(table, method_request);
            Box::pin(async move { tools::answer_as_tool(&calls, &request, answer).await })
        }
        None => Box::pin(async move { tools::call(&calls, &request).await }),
    }
}

fn list(table: &RoutingTable, request: Request, kind: ListKind) -> AnswerFuture {
    let calls = table.calls.clone();
    if !lists::has_to_wait(&calls, &request.caller, kind) {
        ready_outcome(lists::list(&calls, &request, kind))
    } else {
        Box::pin(async move { lists::list_after_starts(&calls, &request, kind).await })
    }
}

fn discover(table: &RoutingTable, request: Request) -> AnswerFuture {
    ready_outcome(initialize::discover(&table.calls, &request.caller))
}

/// A result of 2026-07-28 declares that it is complete (`resultType`).
fn add_result_type(result: &[u8]) -> Bytes {
    let result = String::from_utf8_lossy(result);
    versions::to_stateless_result(&result, versions::StatelessExtras::default()).into()
}

fn ready_outcome(outcome: Outcome) -> AnswerFuture {
    Box::pin(std::future::ready(outcome))
}
