//! The `subscriptions/listen` of a stateless server: replaced when the wanted events change, and reopened when
//! it ends while the connection lives.

mod agent_listens;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_engine::callers::request_ids::RequestIds;
use mgp_engine::servers::supervision::backoff::ReopenBackoff;
use mgp_json::{member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::meta::SUBSCRIPTION_ID;
use mgp_protocol::mcp::subscriptions::{Acknowledged, Filter, Listen};
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::refusal::Refusal;
use tokio::sync::{Semaphore, oneshot, watch};

use self::agent_listens::AgentListens;
use super::calls::RegisteredCall;
use super::{InFlight, Link, LinkEvent, List, MetadataHeaders, Wire, request_meta};
use crate::link::CallContext;
use mgp_callers::request::Outcome;
use mgp_callers::{InFlightCall, ReplyPath};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::monotonic_now;

/// The maximum of open listens: the active one, its successor, and those being closed. A further change waits
/// until one has closed.
pub(super) const MAX_LISTENS: usize = 16;

/// Changes within this time are sent as one listen.
const COALESCE_DELAY: Duration = Duration::from_millis(10);

/// How long a replaced listen stays open: over HTTP, events on it may still be in flight. An event sent on both
/// within this time is delivered twice.
const CLOSE_DELAY: Duration = Duration::from_millis(50);

/// How long a server may take to acknowledge a listen.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the start of a server waits for the acknowledgement; changes missed then are found later.
const START_ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay before a refused listen is retried.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// First and longest delay before an ended listen is reopened.
const REOPEN_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The listen state of one connection.
#[derive(Debug)]
pub(super) struct ListenState {
    wanted: watch::Sender<WantedEvents>,
    answered: watch::Sender<AnsweredRevision>,
    /// The latest acknowledged listen, and the events it covers.
    acknowledged: watch::Sender<(u64, Filter)>,
    /// Listens of single agents, for a server on another node.
    agent_listens: AgentListens,
    closed: watch::Sender<bool>,
    slots: Arc<Semaphore>,
}

/// The events that clients want. Bounded by the table of subscriptions.
#[derive(Debug, Clone, Default)]
struct WantedEvents {
    uris: BTreeSet<String>,
    /// Tasks of the server, with the number of clients that listen for each; bounded by the tasks a client may
    /// name and by the number of clients.
    tasks: BTreeMap<String, usize>,
    /// The number of changes so far.
    revision: u64,
}

/// The revision up to which the server has answered, with the outcome.
#[derive(Debug, Clone, Default)]
struct AnsweredRevision {
    revision: u64,
    outcome: Option<Result<Arc<BTreeSet<String>>, Refusal>>,
}

impl Default for ListenState {
    fn default() -> Self {
        Self {
            wanted: watch::Sender::default(),
            answered: watch::Sender::default(),
            acknowledged: watch::Sender::default(),
            agent_listens: AgentListens::default(),
            closed: watch::Sender::default(),
            slots: Arc::new(Semaphore::new(MAX_LISTENS)),
        }
    }
}

impl Link {
    /// True while clients listen for tasks of the server.
    pub(super) fn has_followed_tasks(&self) -> bool {
        !self.listen_state.wanted.borrow().tasks.is_empty()
    }
}

impl ListenState {
    /// Closes the listen state with the connection.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Records that the server acknowledged a listen; `params` as sent.
    pub(super) fn record_acknowledged(&self, ids: &RequestIds, params: Option<&str>) {
        let Ok(acknowledged) = mcp::parse_params::<Acknowledged<'_>>(params) else {
            return;
        };
        if let Some(id) = acknowledged
            .meta
            .and_then(|meta| listen_number(ids, meta.get()))
        {
            self.acknowledged
                .send_replace((id, acknowledged.notifications));
        }
    }

    /// True for a message of a replaced listen.
    pub(super) fn is_superseded(&self, ids: &RequestIds, params: &str) -> bool {
        let of = member(params, "_meta").and_then(|meta| listen_number(ids, meta));
        of.is_some_and(|of| of < self.acknowledged.borrow().0)
    }

    /// Changes the wanted events; returns the revision.
    fn update_wanted(&self, change: impl FnOnce(&mut WantedEvents)) -> u64 {
        let mut number = 0;
        self.wanted.send_modify(|wanted| {
            change(wanted);
            wanted.revision += 1;
            number = wanted.revision;
        });
        number
    }

    fn publish_outcome(&self, revision: u64, outcome: Result<Arc<BTreeSet<String>>, Refusal>) {
        let outcome = Some(outcome);
        self.answered
            .send_replace(AnsweredRevision { revision, outcome });
    }
}

impl Link {
    /// Keeps a listen open to a stateless server until the connection ends. It always covers list changes.
    pub(crate) fn start_listening(self: &Arc<Self>) {
        if self.peer_for(ProtocolFamily::Stateless).is_some() {
            drop(
                self.spawn_link_task("listening.listen", run(self.clone()))
                    .detach(),
            );
        }
        if matches!(self.wire, Wire::Node(_)) {
            let keep = agent_listens::run(self.clone());
            drop(self.spawn_link_task("listening.of_agents", keep).detach());
        }
    }

    /// True if the server delivers events on a listen; false if each resource is subscribed by itself.
    #[must_use]
    pub fn has_listen(&self) -> bool {
        self.peer_for(ProtocolFamily::Stateless).is_some()
    }

    /// Resolves when the connection has ended.
    pub async fn wait_until_closed(&self) {
        let mut over = self.listen_state.closed.subscribe();
        let _ = over.wait_for(|over| *over).await;
    }

    /// Resolves when the server has acknowledged or refused a listen.
    pub(crate) async fn wait_until_listening(&self) {
        if self.peer_for(ProtocolFamily::Stateless).is_none() {
            return;
        }
        let mut answers = self.listen_state.answered.subscribe();
        let first = answers.wait_for(|answers| answers.outcome.is_some());
        let _ = tokio::time::timeout(START_ACK_TIMEOUT, first).await;
    }

    /// Subscribes to a resource of a stateless server. The returned future resolves when the server agreed, or
    /// with its refusal.
    pub fn follow(
        self: &Arc<Self>,
        uri: &str,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + use<> {
        let (link, uri) = (self.clone(), uri.to_owned());
        let mut answers = self.listen_state.answered.subscribe();
        let revision = self.listen_state.update_wanted(|wanted| {
            wanted.uris.insert(uri.clone());
        });
        let mut over = self.listen_state.closed.subscribe();
        async move {
            let settled = answers.wait_for(|answers| answers.revision >= revision);
            let outcome = tokio::select! {
                settled = settled => settled.ok().and_then(|answers| answers.outcome.clone()),
                _ = over.wait_for(|over| *over) => None,
            };
            let refusal = match outcome {
                Some(Ok(agreed)) if agreed.contains(&uri) => return Ok(()),
                Some(Ok(_)) => Refusal::BadRequest(format!(
                    "server {} does not report changes of {uri}",
                    link.server
                )),
                Some(Err(refusal)) => refusal,
                None => return Err(link.lost_refusal("its connection was closed")),
            };
            // A resource that the server refused is not requested again.
            if refusal.is_answer() || matches!(refusal, Refusal::BadRequest(_)) {
                link.unfollow(&uri);
            }
            Err(refusal)
        }
    }

    /// Ends the subscription to a resource.
    pub fn unfollow(&self, uri: &str) {
        self.listen_state.update_wanted(|wanted| {
            wanted.uris.remove(uri);
        });
    }

    /// Adds a client that listens for a task of this server.
    pub(crate) fn follow_task(&self, own: &str) {
        if matches!(self.wire, Wire::Node(_)) {
            return self.listen_state.agent_listens.follow(own);
        }
        self.listen_state.update_wanted(|wanted| {
            *wanted.tasks.entry(own.to_owned()).or_default() += 1;
        });
    }

    /// Removes a client that listens for a task of this server.
    pub(crate) fn unfollow_task(&self, own: &str) {
        if matches!(self.wire, Wire::Node(_)) {
            return self.listen_state.agent_listens.unfollow(own);
        }
        self.listen_state.update_wanted(|wanted| {
            let left = wanted.tasks.get_mut(own).map(|listeners| {
                *listeners -= 1;
                *listeners
            });
            if left == Some(0) {
                wanted.tasks.remove(own);
            }
        });
    }

    /// Resolves when the server has answered all changes so far.
    pub(crate) async fn wait_until_answered(&self) {
        let revision = self.listen_state.wanted.borrow().revision;
        let mut answers = self.listen_state.answered.subscribe();
        let mut over = self.listen_state.closed.subscribe();
        let answered = async {
            let _ = answers
                .wait_for(|answers| answers.revision >= revision)
                .await;
            self.listen_state.agent_listens.wait_until_answered().await;
        };
        tokio::select! {
            () = answered => {}
            _ = over.wait_for(|over| *over) => {}
            () = tokio::time::sleep(ACK_TIMEOUT) => {}
        }
    }

    fn build_filter(&self, wanted: &WantedEvents) -> Filter {
        let peer = self.peer_for(ProtocolFamily::Stateless);
        let raw = peer.map_or("{}", |peer| &*peer.raw_capabilities);
        let changes = |list: &str| {
            member(raw, list).and_then(|can| member(can, "listChanged")) == Some("true")
        };
        Filter {
            tools_list_changed: changes("tools"),
            prompts_list_changed: changes("prompts"),
            resources_list_changed: changes("resources"),
            resource_subscriptions: wanted.uris.iter().cloned().collect(),
            task_ids: if peer.is_some_and(|peer| peer.capabilities.tasks_extension) {
                wanted.tasks.keys().cloned().collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// The number of the listen that a message belongs to; later ones have higher numbers.
fn listen_number(ids: &RequestIds, meta: &str) -> Option<u64> {
    let id = RequestId::from_response_id(member(meta, SUBSCRIPTION_ID)?)?;
    ids.decode(id.as_number()?)
}

/// One open listen; dropping it ends it at the server too.
#[derive(Debug)]
struct OpenListen {
    id: u64,
    task: SupervisedTask<Outcome>,
}

impl Drop for OpenListen {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl OpenListen {
    async fn open(link: &Arc<Link>, filter: &Filter) -> Result<Self, Refusal> {
        let slot = link.listen_state.slots.clone().acquire_owned().await;
        let (answer, settled) = oneshot::channel();
        let in_flight = InFlight {
            answer,
            call: InFlightCall::new(ReplyPath::Discard),
            caller: None,
            token: None,
            stream: None,
            mgp_progress: false,
            family: ProtocolFamily::Stateless,
            is_listen: true,
            channel: None,
            last_activity: AtomicU64::new(0),
        };
        let id = link.insert(in_flight)?;
        let filter = serde_json::to_string(filter).expect("a filter is plain data");
        let params = format!(r#"{{"notifications":{filter}}}"#);
        let params = request_meta::add_meta(Some(&params), &link.kernel_meta);
        let frame = jsonrpc::request(
            &link.ids.encode(id).to_string(),
            Listen::METHOD,
            Some(&params),
        );
        let link = link.clone();
        let task = task::spawn_supervised("listening.request", async move {
            let _slot = slot;
            let _forget = RegisteredCall { link: &link, id };
            let mirror = MetadataHeaders {
                method: Listen::METHOD,
                name: None,
                params: &[],
            };
            tokio::select! {
                biased;
                outcome = settled => outcome.unwrap_or_else(|_| Err(link.lost_refusal("it was closed"))),
                never = link.wire.send_call(&link, id, frame.into(), ProtocolFamily::Stateless, mirror, CallContext::default()) => match never {},
            }
        });
        Ok(Self { id, task })
    }

    /// Resolves when the server has acknowledged it, with the events it agreed to send.
    ///
    /// # Errors
    /// The reason for a refusal.
    async fn wait_acknowledged(&mut self, link: &Link) -> Result<Filter, Refusal> {
        let mut acknowledged = link.listen_state.acknowledged.subscribe();
        let id = self.id;
        let outcome = acknowledged.wait_for(|(acknowledged, _)| *acknowledged == id);
        tokio::select! {
            outcome = tokio::time::timeout(ACK_TIMEOUT, outcome) => match outcome {
                Ok(Ok(outcome)) => Ok(outcome.1.clone()),
                Ok(Err(_)) | Err(_) => Err(link.lost_refusal("a listen was not acknowledged")),
            },
            ended = self.wait_ended(link) => Err(ended),
        }
    }

    /// Resolves when the server ends it, with the reason.
    async fn wait_ended(&mut self, link: &Link) -> Refusal {
        match (&mut self.task).await {
            Ok(Ok(_)) | Err(_) => link.lost_refusal("it ended a listen"),
            Ok(Err(refusal)) => refusal,
        }
    }

    fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Closes it after a delay, because it was replaced.
    fn retire(self) {
        task::spawn_detached("listening.former", async move {
            tokio::time::sleep(CLOSE_DELAY).await;
            drop(self);
        });
    }
}

/// Runs the listen task until the connection ends.
async fn run(link: Arc<Link>) {
    let mut over = link.listen_state.closed.subscribe();
    tokio::select! {
        biased;
        _ = over.wait_for(|over| *over) => {}
        () = run_listen_loop(&link) => {}
    }
}

async fn run_listen_loop(link: &Arc<Link>) {
    let mut wanted = link.listen_state.wanted.subscribe();
    let mut current: Option<OpenListen> = None;
    let (mut wait, mut pace) = (REOPEN_BACKOFF.0, ReopenBackoff::default());
    let mut gap = false;
    loop {
        let now = wanted.borrow_and_update().clone();
        let (filter, revision) = (link.build_filter(&now), now.revision);
        if filter == Filter::default() {
            current = None;
            link.listen_state
                .publish_outcome(revision, Ok(Arc::default()));
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        }
        match open_acknowledged(link, &filter).await {
            Ok((listen, agreed)) => {
                wait = REOPEN_BACKOFF.0;
                if std::mem::take(&mut gap) {
                    report_possible_changes(link, &agreed);
                }
                let uris = agreed.resource_subscriptions.into_iter().collect();
                link.listen_state
                    .publish_outcome(revision, Ok(Arc::new(uris)));
                if let Some(before) = current.replace(listen) {
                    before.retire();
                }
            }
            Err(refusal) => {
                log_refusal(link, &refusal);
                gap |= current.as_ref().is_none_or(OpenListen::is_finished);
                let refused = refusal.is_answer();
                link.listen_state.publish_outcome(revision, Err(refusal));
                back_off(&mut wait).await;
                if refused {
                    let _ = tokio::time::timeout(REFUSED_RETRY_INTERVAL, wanted.changed()).await;
                }
                continue;
            }
        }
        let Some(listen) = &mut current else {
            continue;
        };
        let opened = monotonic_now();
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(COALESCE_DELAY).await;
            }
            ended = listen.wait_ended(link) => {
                log_refusal(link, &ended);
                (current, gap) = (None, true);
                tokio::time::sleep(pace.next_wait(monotonic_now().duration_since(opened), None)).await;
            }
        }
    }
}

/// Logs a refused listen; it is retried automatically.
fn log_refusal(link: &Link, why: &Refusal) {
    let why = if let Refusal::ServerLost { reason, .. } = why {
        reason.clone()
    } else {
        why.to_string()
    };
    link.log.push_note(&format!("{}: {why}", Listen::METHOD));
}

async fn open_acknowledged(
    link: &Arc<Link>,
    filter: &Filter,
) -> Result<(OpenListen, Filter), Refusal> {
    let mut listen = OpenListen::open(link, filter).await?;
    let agreed = listen.wait_acknowledged(link).await?;
    Ok((listen, agreed))
}

async fn back_off(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(REOPEN_BACKOFF.1);
}

/// Reports possible changes after a gap: lists may have changed while no listen was open, and followed resources
/// of another node may have changed while it restarted.
fn report_possible_changes(link: &Link, agreed: &Filter) {
    for (may, list) in [
        (agreed.tools_list_changed, List::Tools),
        (agreed.prompts_list_changed, List::Prompts),
        (agreed.resources_list_changed, List::Resources),
    ] {
        if may {
            link.emit(LinkEvent::ListChanged(list));
        }
    }
    let at_node = matches!(link.wire(), Wire::Node(_));
    for uri in agreed.resource_subscriptions.iter().filter(|_| at_node) {
        let params = format!(r#"{{"uri":{}}}"#, quote(uri));
        let uri = uri.clone();
        link.emit(LinkEvent::ResourceUpdated { uri, params });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::link::scripted::ScriptedServer;

    const TOOLS: &str = r#"{"tools":{"listChanged":true},"prompts":{},"resources":{}}"#;

    fn acknowledge(server: &ScriptedServer, listen: &Value, notifications: &Value) {
        server.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_ID: listen["id"]}, "notifications": notifications},
        }));
    }

    async fn next_listen(server: &mut ScriptedServer) -> (Value, Value) {
        let listen = server.next_message().await;
        assert_eq!(listen["method"], "subscriptions/listen");
        let version = &listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, "2026-07-28");
        let wanted = listen["params"]["notifications"].clone();
        (listen, wanted)
    }

    fn updated(server: &ScriptedServer, listen: &Value, uri: &str) {
        server.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"_meta": {SUBSCRIPTION_ID: listen["id"]}, "uri": uri},
        }));
    }

    /// A change opens a new listen; the old one is closed once the new one is acknowledged, and an event sent on
    /// both is delivered once.
    #[tokio::test]
    async fn changed_subscription_leaves_no_gap() {
        let mut server = ScriptedServer::stateless(TOOLS);
        server.link.start_listening();
        let (first, wanted) = next_listen(&mut server).await;
        assert_eq!(wanted, json!({"toolsListChanged": true}));
        acknowledge(&server, &first, &wanted);
        server.link.wait_until_listening().await;
        let mut granted = Box::pin(server.link.follow("a:b"));
        let (second, wanted) = next_listen(&mut server).await;
        let all = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:b"]});
        assert_eq!(wanted, all);
        tokio::select! {
            biased;
            granted = &mut granted => panic!("{granted:?} before it was acknowledged"),
            () = std::future::ready(()) => {}
        }
        updated(&server, &first, "a:b");
        acknowledge(&server, &second, &wanted);
        granted.await.unwrap();
        updated(&server, &first, "a:b");
        updated(&server, &second, "a:b");
        let expected = [r#"a:b {"uri":"a:b"}"#; 2];
        assert_eq!(*server.received.0.lock().unwrap(), expected);
        let cancelled = server.next_message().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], first["id"]);
    }

    /// A listen that ends is reopened, and lists that may have changed are fetched.
    #[tokio::test]
    async fn ended_listen_is_reopened() {
        let mut server = ScriptedServer::stateless(TOOLS);
        server.link.start_listening();
        let (first, wanted) = next_listen(&mut server).await;
        acknowledge(&server, &first, &wanted);
        server.link.wait_until_listening().await;
        server.answer(&first, "result", &json!({"resultType": "complete"}));
        let (second, again) = next_listen(&mut server).await;
        assert_eq!(again, wanted);
        acknowledge(&server, &second, &wanted);
        let granted = tokio::spawn(server.link.follow("a:b"));
        let (third, wanted) = next_listen(&mut server).await;
        acknowledge(&server, &third, &wanted);
        granted.await.unwrap().unwrap();
        assert_eq!(*server.received.0.lock().unwrap(), ["Tools"]);
    }

    /// A listen that the server ends at once is reopened with growing delays.
    #[tokio::test]
    async fn listens_that_end_at_once_back_off() {
        let mut server = ScriptedServer::stateless(TOOLS);
        server.link.start_listening();
        let begun = monotonic_now();
        for _ in 0..6 {
            let (listen, wanted) = next_listen(&mut server).await;
            acknowledge(&server, &listen, &wanted);
            server.link.wait_until_listening().await;
            server.answer(&listen, "result", &json!({"resultType": "complete"}));
        }
        let took = monotonic_now().duration_since(begun);
        assert!(took > Duration::from_millis(1500), "{took:?}");
    }

    /// A subscription that the server did not acknowledge is refused to clients, and not requested again.
    #[tokio::test]
    async fn unacknowledged_subscription_is_refused() {
        let mut server = ScriptedServer::stateless(r#"{"resources":{}}"#);
        server.link.start_listening();
        server.link.wait_until_listening().await;
        let granted = tokio::spawn(server.link.follow("a:b"));
        let (listen, _) = next_listen(&mut server).await;
        acknowledge(&server, &listen, &json!({}));
        let refusal = granted.await.unwrap().unwrap_err();
        assert!(refusal.to_string().contains("a:b"), "{refusal}");
        let cancelled = server.next_message().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(server.link.in_flight(), 0);
    }

    /// A listen is not a call: a connection with only a listen is idle.
    #[tokio::test]
    async fn listen_does_not_count_as_call() {
        let mut server = ScriptedServer::stateless(TOOLS);
        server.link.start_listening();
        let (listen, wanted) = next_listen(&mut server).await;
        acknowledge(&server, &listen, &wanted);
        server.link.wait_until_listening().await;
        assert_eq!(server.link.in_flight(), 0);
        assert!(server.link.drain(Duration::from_secs(5)).await);
        server.link.fail_pending_calls("it was stopped");
        let lost = server.link.follow("a:b").await.unwrap_err();
        assert!(matches!(lost, Refusal::ServerLost { .. }), "{lost}");
    }
}
