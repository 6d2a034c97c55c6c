//! The known entries of skills, and their pins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::tools::skills::{BadSkill, SkillMismatch, Skills, StoredSkill};
use mgp_policy::PinsHandle;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;

use crate::Context;

/// The newest entries of skills, with their pins: a skill is pinned as a tool is.
#[derive(Debug)]
pub struct SkillTable {
    skills: Mutex<Skills>,
    pins: PinsHandle,
    /// Changes with the entries.
    generation: AtomicU64,
}

impl SkillTable {
    /// Without entries.
    #[must_use]
    pub fn new(pins: PinsHandle) -> Self {
        Self {
            skills: Mutex::default(),
            pins,
            generation: AtomicU64::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Skills> {
        self.skills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pins of skills.
    #[must_use]
    pub fn pins(&self) -> &PinsHandle {
        &self.pins
    }

    /// Changes with the entries, and with those that wait for an approval.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire) + self.pins.block_changes()
    }

    /// Whether the server's skills were listed, or loaded from its pins.
    pub(crate) fn knows(&self, server: &ServerId) -> bool {
        self.lock().knows(server)
    }

    pub(crate) fn has_any(&self, server: &ServerId) -> bool {
        self.lock().has_any(server)
    }

    /// The innermost skill of a file.
    pub(crate) fn find_skill(&self, server: &ServerId, file: &str) -> Option<Arc<str>> {
        self.lock().find_skill(server, file)
    }

    /// One skill.
    pub(crate) fn find(&self, server: &ServerId, uri: &Arc<str>) -> Option<StoredSkill> {
        self.lock().find(server, uri)
    }

    /// The skills of the server's last list.
    pub(crate) fn listed(&self, server: &ServerId) -> Vec<StoredSkill> {
        self.lock().listed(server)
    }

    /// The own URIs of all known skills of a server.
    pub(crate) fn uris(&self, server: &ServerId) -> Vec<Arc<str>> {
        let all = self.lock().all(server).into_iter();
        all.map(|skill| skill.uri).collect()
    }

    pub(crate) fn verify(
        &self,
        server: &ServerId,
        uri: &str,
        result: &[u8],
    ) -> Result<(), (String, SkillMismatch)> {
        // A large file takes milliseconds, in which others use the table.
        let skills = self.lock().server(server);
        skills.map_or(Ok(()), |skills| {
            skills.verify(uri, std::str::from_utf8(result).unwrap_or_default())
        })
    }

    /// Stores entries as their server sent them, and compares them with their pins; with `whole`, they are its list.
    ///
    /// # Errors
    /// The pins of the server cannot be used, so its skills are unknown.
    pub(crate) async fn record(
        &self,
        cx: &Context,
        server: &ServerId,
        entries: &[&str],
        whole: bool,
    ) -> Result<Vec<Result<Arc<str>, BadSkill>>, Refusal> {
        let (recorded, all) = {
            let mut skills = self.lock();
            let is_first = !skills.knows(server);
            if is_first {
                let servers = cx.servers.load();
                skills.retain(|id| servers.contains_key(id));
            }
            let (recorded, is_changed) = skills.record(server, entries, whole);
            self.generation
                .fetch_add(u64::from(is_changed), Ordering::AcqRel);
            (
                recorded,
                (is_first || is_changed).then(|| skills.all(server)),
            )
        };
        if let Some(all) = all {
            self.compare(cx, server, all).await?;
        }
        Ok(recorded)
    }

    /// Loads the approved entries of the last list that is on disk, for a server that cannot be asked now.
    pub(crate) async fn load(&self, cx: &Context, server: &ServerId) {
        let (pins, tools) = (self.pins.clone(), cx.policies.pins.clone());
        let id = server.clone();
        let reading = task::run_blocking("skills.last_list", move || {
            pins.last_list(&id, &tools.rules(&id))
        });
        let last = reading.await.unwrap_or_default();
        // Without a file nothing is known.
        if last.is_empty() {
            return;
        }
        let last: Vec<&str> = last.iter().map(|entry| &**entry).collect();
        let loaded = self.record(cx, server, &last, true).await;
        if let Err(error) = loaded {
            tracing::warn!(%server, %error, "its skills of the last run are not used");
        }
    }

    async fn compare(
        &self,
        cx: &Context,
        server: &ServerId,
        all: Vec<StoredSkill>,
    ) -> Result<(), Refusal> {
        let (pins, tools) = (self.pins.clone(), cx.policies.pins.clone());
        let id = server.clone();
        // Pins are on disk.
        let comparing = task::run_blocking("skills.compare", move || {
            pins.compare(&id, all, &tools.rules(&id))
        });
        let compared = comparing.await.unwrap_or_else(|why| Err(why.to_string()));
        compared.map_err(Refusal::Internal)
    }
}
