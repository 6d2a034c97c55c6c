//! Tasks created by servers: support, listing and status.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::callers::tasks::{Maker, TaskStatus};
use mgp_json::{member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Upstream;
use crate::link::Link;
use mgp_callers::request::Caller;

/// The most pages fetched of one server's task list, so that an endless list ends.
const MAX_PAGES: usize = 16;

/// How long a server may take to report the status of a task: a person waits for it.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks of 2025-11-25 that a server declares.
#[derive(Debug)]
pub struct LegacyTasks {
    /// The capability, as JSON text.
    pub capability: Option<Box<str>>,
    /// True if the server lists its tasks.
    pub can_list: bool,
}

/// A page of `tasks/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// A subscription to a task at its server, until dropped. The link is weak, because a client may listen for
/// days, which must not keep an old connection alive.
#[derive(Debug)]
pub struct FollowedTask {
    link: Weak<Link>,
    task_id: String,
}

impl Upstream<'_> {
    /// True if its calls may become tasks of a stateless client, created by the server or the kernel.
    #[must_use]
    pub fn can_create_tasks(&self) -> bool {
        let link = self.shared_link();
        link.is_some_and(|link| {
            link.has_server_directed_tasks() || !link.limits.task_after.is_zero()
        })
    }

    /// True if its calls may become tasks of a client of 2025-11-25, although it creates tasks of the extension.
    #[must_use]
    pub fn should_bridge_tasks(&self) -> bool {
        self.shared_link()
            .is_some_and(|link| link.should_bridge_tasks())
    }

    /// Its declared tasks of 2025-11-25; `None` if it has none.
    #[must_use]
    pub fn legacy_tasks(&self) -> Option<LegacyTasks> {
        let link = self.shared_link()?;
        let peer = link.experimental_tasks_peer()?;
        Some(LegacyTasks {
            capability: member(&peer.raw_capabilities, "tasks").map(Into::into),
            can_list: peer.capabilities.tasks_list,
        })
    }

    /// Passes each task in the list of the caller's instance to `show`. Pages that cannot be fetched are left
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

    /// The status of a task of this server, by its own id; `None` without an answer in time, and for servers
    /// with an instance per agent, because the instance is unknown.
    pub async fn task_status(&self, maker: &Maker) -> Option<TaskStatus> {
        let (family, own) = match maker {
            Maker::Modern { task } => (ProtocolFamily::Stateless, task),
            Maker::Legacy { task } => (ProtocolFamily::Legacy, task),
            Maker::Kernel { .. } => return None,
        };
        let link = self.draining_link(own).or_else(|| self.shared_link())?;
        link.peer_for(family)?;
        let params = format!(r#"{{"taskId":{}}}"#, quote(own));
        let request = link.request_in(family, "tasks/get", Some(&params));
        let answer = tokio::time::timeout(STATUS_TIMEOUT, request)
            .await
            .ok()?
            .ok()?;
        let status = member(std::str::from_utf8(&answer).ok()?, "status")?;
        TaskStatus::parse(&serde_json::from_str::<String>(status).ok()?)
    }

    /// Subscribes a client to a task of the extension, by the server's own id; `None` if the server is not
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
}

/// Passes each task in the list of a connection's server to `show`.
async fn list_tasks(link: &Arc<Link>, mut show: impl FnMut(&RawValue)) {
    if !link
        .experimental_tasks_peer()
        .is_some_and(|peer| peer.capabilities.tasks_list)
    {
        return;
    }
    let mut params = None;
    for _ in 0..MAX_PAGES {
        let request = link.request_in(ProtocolFamily::Legacy, "tasks/list", params.as_deref());
        let Ok(result) = request.await else {
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
    /// Resolves when the server has answered the subscription. A client without notifications can still poll the
    /// task.
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
