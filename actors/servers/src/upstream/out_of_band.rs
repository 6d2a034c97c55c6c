//! What a server is told, and what is known of it, beside requests. A server that is not connected is told
//! nothing: it learns all of it when it connects.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskStatus};
use mgp_json::{member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Upstream;
use crate::link::{Link, Wire};
use crate::log_levels;
use mgp_callers::directory::Directory;
use mgp_callers::request::{Caller, Request};

/// Pages fetched of one server's list of tasks, so that an endless list ends.
const MAX_PAGES: usize = 16;

/// How long a server may take to say how a task stands: a person waits for it.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// So many agents with roots, and a server that they share gets none of them.
const ROOTED_AGENTS_LIMIT: usize = 3;

/// What a server declares of the tasks of 2025-11-25.
#[derive(Debug)]
pub struct LegacyTasks {
    /// Its capability, as JSON text.
    pub capability: Option<Box<str>>,
    /// It lists its tasks.
    pub can_list: bool,
}

/// Pages of `tasks/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// A subscription to a task at its server, until dropped. Weak: a client may listen for days, which must
/// not keep an old connection alive.
#[derive(Debug)]
pub struct FollowedTask {
    link: Weak<Link>,
    task_id: String,
}

impl Upstream<'_> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ServerId {
        &self.id
    }

    /// Starts it for this request, where it is not running.
    ///
    /// # Errors
    /// As [`Self::send`], before anything is sent.
    pub async fn start(&self, request: &Request) -> Result<(), Refusal> {
        self.link(request).await.map(drop)
    }

    /// How long a call with its retries may take, where it was agreed that the server says what may be tried
    /// again (MGP §14.6).
    #[must_use]
    pub fn retry_time_limit(&self) -> Option<Duration> {
        let link = self.shared_link()?;
        // The kernel of another node judges its server's errors itself, and has tried again by then.
        if matches!(link.wire(), Wire::Node(_)) {
            return None;
        }
        let agreed = link.mgp().has_error_codes();
        agreed.then_some(link.limits.call_timeout_max)
    }

    /// Whether a request to it repeats parts of its body in headers, which it may find to differ from the body
    /// before it does anything.
    #[must_use]
    pub fn has_header_params(&self) -> bool {
        let link = self.shared_link();
        link.is_some_and(|link| matches!(link.wire(), Wire::Http(_)))
    }

    /// Calls to it may become tasks of a stateless client: it makes them itself, or the kernel does.
    #[must_use]
    pub fn can_create_tasks(&self) -> bool {
        let link = self.shared_link();
        link.is_some_and(|link| {
            link.has_server_directed_tasks() || !link.limits.task_after.is_zero()
        })
    }

    /// Calls to it may become tasks of a client of 2025-11-25, though it makes those of the extension.
    #[must_use]
    pub fn should_bridge_tasks(&self) -> bool {
        self.shared_link()
            .is_some_and(|link| link.should_bridge_tasks())
    }

    /// What it declares of the tasks of 2025-11-25; `None` where it has none.
    #[must_use]
    pub fn legacy_tasks(&self) -> Option<LegacyTasks> {
        let link = self.shared_link()?;
        let peer = link.experimental_tasks_peer()?;
        Some(LegacyTasks {
            capability: member(&peer.raw_capabilities, "tasks").map(Into::into),
            can_list: peer.capabilities.tasks_list,
        })
    }

    /// Shows each task of its list, of the instance that this caller uses. What cannot be fetched is left
    /// out.
    pub async fn list_legacy_tasks(&self, caller: &Caller, mut show: impl FnMut(&RawValue)) {
        let leaving = self
            .servers
            .load()
            .get(&self.id)
            .and_then(|it| it.draining_link());
        for link in leaving.into_iter().chain(self.link_for(caller)) {
            list_tasks(&link, &mut show).await;
        }
    }

    /// How a task of this server stands, by its own id; `None` where it does not say so in time. Nobody knows
    /// whose instance to ask where agents have their own.
    pub async fn task_status(&self, maker: &Maker) -> Option<TaskStatus> {
        let (era, own) = match maker {
            Maker::Modern { task } => (ProtocolFamily::Stateless, task),
            Maker::Legacy { task } => (ProtocolFamily::Legacy, task),
            Maker::Kernel { .. } => return None,
        };
        let link = self.draining_link(own).or_else(|| self.shared_link())?;
        link.peer_for(era)?;
        let params = format!(r#"{{"taskId":{}}}"#, quote(own));
        let asked = link.request_in(era, "tasks/get", Some(&params));
        let answer = tokio::time::timeout(STATUS_TIMEOUT, asked)
            .await
            .ok()?
            .ok()?;
        let status = member(std::str::from_utf8(&answer).ok()?, "status")?;
        TaskStatus::parse(&serde_json::from_str::<String>(status).ok()?)
    }

    /// Follows a task of the extension for a client, by the server's own id. Nothing where it is not
    /// connected.
    #[must_use]
    pub fn follow_task(&self, caller: &Caller, own: &str) -> Option<FollowedTask> {
        let handle = self.servers.load().get(&self.id).cloned()?;
        let link = self
            .draining_link(own)
            .or_else(|| handle.link_for(caller))?;
        link.follow_task(own);
        Some(FollowedTask {
            link: Arc::downgrade(&link),
            task_id: own.to_owned(),
        })
    }

    /// The roots of this caller changed: it is told, if it asked for roots.
    pub fn notify_roots_changed(&self, caller: &Caller, directory: &Directory) {
        let told = |link: &Arc<Link>| {
            let most = ROOTED_AGENTS_LIMIT;
            link.has_requested_roots()
                && directory.agents_with_roots(&link.server, most, None).len() < most
        };
        if let Some(link) = self.shared_link().filter(told) {
            link.notify_roots_changed();
        }
        if let Some(link) = self
            .instance_link(caller)
            .filter(|link| link.has_requested_roots())
        {
            link.notify_roots_changed();
        }
    }

    /// An agent chose its log level: the server is told the most verbose one that any agent wants.
    pub async fn sync_level(&self, caller: &Caller, directory: &Directory) {
        let links = [self.shared_link(), self.instance_link(caller)];
        let links: Vec<_> = links.into_iter().flatten().collect();
        join_all(
            links
                .iter()
                .map(|link| log_levels::sync_level(directory, link)),
        )
        .await;
    }

    /// The connection that its callers share, if there is one now.
    fn shared_link(&self) -> Option<Arc<Link>> {
        self.servers.load().get(&self.id)?.link()
    }

    /// The connection of this caller, which is the shared one where it has none for itself.
    fn link_for(&self, caller: &Caller) -> Option<Arc<Link>> {
        let handle = self.servers.load().get(&self.id).cloned()?;
        handle.link()?;
        handle.link_for(caller)
    }

    /// The connection of the instance that this caller has for itself.
    fn instance_link(&self, caller: &Caller) -> Option<Arc<Link>> {
        let shared = self.shared_link()?;
        let own = self.link_for(caller)?;
        (own.number != shared.number).then_some(own)
    }
}

/// Shows each task of the list of the server behind a connection.
async fn list_tasks(link: &Arc<Link>, mut show: impl FnMut(&RawValue)) {
    if !link
        .experimental_tasks_peer()
        .is_some_and(|peer| peer.capabilities.tasks_list)
    {
        return;
    }
    let mut params = None;
    for _ in 0..MAX_PAGES {
        let asked = link.request_in(ProtocolFamily::Legacy, "tasks/list", params.as_deref());
        let Ok(result) = asked.await else {
            return;
        };
        let Ok(page) = serde_json::from_slice::<TaskPage<'_>>(&result) else {
            return;
        };
        page.tasks.into_iter().for_each(&mut show);
        match page.next_cursor {
            Some(cursor) => params = Some(format!(r#"{{"cursor":{}}}"#, quote(&cursor))),
            None => return,
        }
    }
}

impl FollowedTask {
    /// Resolves when the server has answered. A client that gets no news of a task can still ask for it.
    pub async fn wait_until_answered(&self) {
        if let Some(link) = self.link.upgrade() {
            link.wait_until_answered().await;
        }
    }
}

impl Drop for FollowedTask {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.unfollow_task(&self.task_id);
        }
    }
}
