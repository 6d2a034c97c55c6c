//! `subscriptions/listen`: sends a stateless client the events it named until either side ends it (MCP
//! 2026-07-28, subscriptions).

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskHandle};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::SUBSCRIPTION_ID;
use mgp_protocol::mcp::subscriptions::{Filter, Listen};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::{jsonrpc, mcp};

use crate::answer::require_params;
use crate::mcp::{kernel_resources, resources, tasks};
use crate::{Context, listener};
use mgp_callers::Delivery;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::upstream::{FollowedTask, check_tasks_declared};

/// Resources, or tasks, that one request may name; a client that wants more listens twice.
const MAX_RESOURCES: usize = 1000;

/// Sends the client the events it wants; answered when the kernel ends.
///
/// # Errors
/// [`Refusal::BadParams`]; [`Refusal::Cancelled`] when the client has heard enough.
pub async fn listen(cx: &Context, request: &Request) -> Outcome {
    let Listen { notifications } = mcp::parse_params(Some(require_params(request)?))?;
    if notifications.resource_subscriptions.len() > MAX_RESOURCES {
        return Err(Refusal::BadParams(format!(
            "`resourceSubscriptions` names more than {MAX_RESOURCES} resources; listen twice"
        )));
    }
    if notifications.task_ids.len() > MAX_RESOURCES {
        return Err(Refusal::BadParams(format!(
            "`taskIds` names more than {MAX_RESOURCES} tasks; listen twice"
        )));
    }
    if !notifications.task_ids.is_empty() {
        check_tasks_declared(request)?;
    }
    let attempts = request.call.rounds();
    let id = attempts.ok_or_else(|| Refusal::UnknownMethod("subscriptions/listen".into()))?;
    let tag = format!(r#"{{"{SUBSCRIPTION_ID}":{}}}"#, id.id().as_json());
    let (mut wanted, resources) = resolve_filter(cx, request, notifications).await;
    let tasks = resolve_tasks(cx, request, &mut wanted);
    let followed = follow_tasks(cx, &request.caller, &tasks);
    let agent = Agent::new_listener(&request.caller, &request.call, &wanted, &tag, tasks);
    let listener = listener::start(
        &cx.agents,
        &cx.directory,
        (&cx.subscriptions, &cx.events),
        &agent,
    );
    let mut listener = listener.await?;
    let wanted = follow_resources(cx, &agent, wanted, resources).await;
    join_all(followed.iter().map(FollowedTask::wait_until_answered)).await;
    request
        .call
        .send(render_acknowledgment(&wanted, &tag), Delivery::Reliable);
    agent.set_ready();
    tokio::select! {
        () = request.call.wait_until_cancelled() => Err(Refusal::Cancelled),
        () = listener.wait_until_lost() => Err(Refusal::Internal("the subscription is lost; listen again".into())),
        () = cx.shutdown.cancelled() => {
            Ok(format!(r#"{{"resultType":"complete","_meta":{tag}}}"#).into())
        }
    }
}

/// Which of the events it wants the client will get, and the servers of the resources. Servers that
/// are starting are waited for, all at once.
async fn resolve_filter(
    cx: &Context,
    request: &Request,
    wanted: Filter,
) -> (Filter, Vec<FollowedResource>) {
    let owned = async |shown: &String| {
        let (server, own) = resources::subscription_target(cx, request, shown.clone())
            .await
            .ok()?;
        if !resources::has_resource_updates(cx, &server) {
            return None;
        }
        let server = resources::open_subscription_key(cx, request, server)
            .await
            .ok()?;
        Some(FollowedResource {
            client_uri: shown.clone(),
            server,
            server_uri: own,
        })
    };
    let resources = join_all(wanted.resource_subscriptions.iter().map(owned)).await;
    (wanted, resources.into_iter().flatten().collect())
}

/// The tasks it wants; names that were not given to this client are left out.
fn resolve_tasks(
    cx: &Context,
    request: &Request,
    wanted: &mut Filter,
) -> Vec<(TaskHandle, String)> {
    let named = std::mem::take(&mut wanted.task_ids);
    let tasks: Vec<_> = named
        .into_iter()
        .filter_map(|id| Some((tasks::find_task(cx, &request.caller, &id)?, id)))
        .collect();
    wanted.task_ids = tasks.iter().map(|(_, id)| id.clone()).collect();
    tasks
}

/// Subscribes to tasks at servers, until dropped.
fn follow_tasks(
    cx: &Context,
    caller: &Caller,
    tasks: &[(TaskHandle, String)],
) -> Vec<FollowedTask> {
    let tasks = tasks.iter().map(|(named, _)| &named.task);
    let of_servers = tasks.filter_map(|task| match &task.maker {
        Maker::Modern { task: own } => cx.upstream(&task.server).follow_task(caller, own),
        Maker::Legacy { .. } | Maker::Kernel { .. } => None,
    });
    of_servers.collect()
}

/// Subscribes to resources at servers; what a server refuses is left out of the answer.
async fn follow_resources(
    cx: &Context,
    agent: &Agent,
    mut wanted: Filter,
    resources: Vec<FollowedResource>,
) -> Filter {
    wanted.resource_subscriptions.clear();
    for FollowedResource {
        client_uri: shown,
        server,
        server_uri: own,
    } in resources
    {
        let of_events = agent
            .caller()
            .is_some_and(|caller| kernel_resources::is_event_resource(caller, &own));
        let subscribed = if of_events {
            cx.events.watch(agent.connection, own).await
        } else {
            let subscriptions = &cx.subscriptions;
            subscriptions.subscribe(agent.connection, server, own).await
        };
        if subscribed.is_ok() {
            wanted.resource_subscriptions.push(shown);
        }
    }
    wanted
}

/// A resource, by the URI the client knows and by the server's own.
struct FollowedResource {
    client_uri: String,
    server: ServerId,
    server_uri: String,
}

fn render_acknowledgment(wanted: &Filter, tag: &str) -> bytes::Bytes {
    let wanted = serde_json::to_string(wanted).expect("a filter is always JSON");
    let params = format!(r#"{{"notifications":{wanted},"_meta":{tag}}}"#);
    jsonrpc::notification("notifications/subscriptions/acknowledged", Some(&params)).into()
}
