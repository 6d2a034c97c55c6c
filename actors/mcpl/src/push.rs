//! Push events and their delivery (MCPL §9): checked, persisted before anybody receives them, delivered once, and answered
//! the same at each retry.
//!
//! Recipients are tried in this order: the kernel's own inference, if the operator configured that for the set; otherwise
//! the agents that are MCPL hosts and accept push events, the oldest connection first, until one accepts. All others
//! receive the event on the bus. It is accepted if one of these accepted it, or if its channel has a subscriber.

mod delivery;

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_mcpl_engine::names;
use mgp_mcpl_engine::push::limits::PushRates;
use mgp_mcpl_engine::push::memory::{EventBody, MemoryEntry, PushLookup, PushMemory};
use mgp_mcpl_engine::push::{BYTES_MAX, PushPolicy, PushRule, channel_name, parse_iso8601};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_runtime::{EventSink, Reply, task};
use mgp_servers::ServerTable;
use mgp_servers::link::McplAnswer;
use mgp_store::Witness;
use mgp_store::journal::{AppendError, Journal, JournalError};
use mgp_tools::{EventsHandle, PushChannel};

use self::delivery::DeliveryOutcome;
use crate::agents::McplAgents;
use crate::audit::outcome_of_error;
use crate::hooks::IdMapper;
use crate::host::{HostEvent, McplHandler, McplHost, McplServerMessage};

/// The journal in the data folder.
pub const JOURNAL: &str = "mcpl-push.journal";
/// The kind of journal, in its header.
const KIND: &str = "mgp mcpl push events";

/// A request to start an inference of the kernel for an event.
#[derive(Debug)]
pub struct PushInference {
    /// The server.
    pub server: ServerId,
    /// The feature set.
    pub set: String,
    /// The origin, unchanged.
    pub origin: Option<String>,
    /// The content.
    pub content: Content,
    /// Answered with the id of the inference once it has started, or with the reason why it did not.
    pub started: Reply<Result<String, String>>,
}

/// Handles push events of servers.
#[derive(Debug, Clone)]
pub struct PushHandle(Arc<SharedPush>);

/// The events that earlier runs of the kernel accepted.
#[derive(Debug)]
pub struct StoredPushes {
    memory: PushMemory,
    journal: Journal,
    loss: Option<String>,
}

/// The recipients of push events.
#[derive(Debug)]
pub struct PushTargets {
    /// The servers and their sets.
    pub host: Arc<McplHost>,
    /// The agents that are hosts.
    pub agents: Arc<McplAgents>,
    /// The bus for all others.
    pub events: EventsHandle,
    /// Starts inferences of the kernel.
    pub inference: EventSink<PushInference>,
    /// Maps ids of inferences for servers.
    pub ids: IdMapper,
    /// The owners of instances.
    pub servers: Arc<ServerTable>,
}

#[derive(Debug)]
struct SharedPush {
    targets: PushTargets,
    policy: RwLock<Arc<PushPolicy>>,
    journal: Journal,
    state: Mutex<PushState>,
}

#[derive(Debug, Default)]
struct PushState {
    memory: PushMemory,
    rates: PushRates,
    /// Retries that arrived while an event was in flight.
    waiters: HashMap<(ServerId, String), Vec<Reply<McplAnswer>>>,
}

/// A new event, with the inputs of its delivery.
struct NewPush {
    server: ServerId,
    params: String,
    content: Content,
    rule: PushRule,
}

impl StoredPushes {
    /// Opens the memory in the data folder. Blocks.
    ///
    /// # Errors
    /// [`JournalError`], as a text for the person who starts the kernel.
    pub fn open(data_dir: &Path, witness: Witness) -> Result<Self, JournalError> {
        let opened = Journal::open_witnessed(&data_dir.join(JOURNAL), KIND, witness)?;
        let truncated = opened.truncated.map(|truncated| {
            format!(
                "{truncated}: push events that were answered may be handed on once more; put a copy of the file back and start the kernel again, or run `mgp down`, then `mgp accept {JOURNAL}`"
            )
        });
        if let Some(tail) = opened.torn_tail {
            tracing::warn!("{tail}");
        }
        let (memory, unread) = PushMemory::restore(&opened.entries, unix_ms());
        if unread > 0 {
            tracing::warn!(unread, "some answered push events cannot be restored");
        }
        Ok(Self {
            memory,
            journal: opened.journal,
            loss: truncated,
        })
    }

    /// Describes missing entries and the remedy.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// Compares the memory with its witness while no kernel has it open, and changes neither; blocks.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn compare(data_dir: &Path, witness: &Witness) -> Result<Option<String>, JournalError> {
        let truncated = Journal::compare(&data_dir.join(JOURNAL), KIND, witness)?;
        Ok(truncated.map(|it| it.to_string()))
    }
}

impl PushHandle {
    /// Handles events by this policy.
    #[must_use]
    pub fn new(stored: StoredPushes, policy: PushPolicy, to: PushTargets) -> Self {
        let state = PushState {
            memory: stored.memory,
            ..PushState::default()
        };
        Self(Arc::new(SharedPush {
            targets: to,
            policy: RwLock::new(Arc::new(policy)),
            journal: stored.journal,
            state: Mutex::new(state),
        }))
    }

    /// The handler of `push/event` for all servers.
    #[must_use]
    pub fn handler(&self) -> McplHandler {
        let (for_messages, for_events) = (self.clone(), self.clone());
        McplHandler {
            methods: &[Event::METHOD],
            messages: EventSink::new(move |server_message: McplServerMessage| {
                if let Some((_, reply)) = server_message.message.request {
                    for_messages.handle_event(
                        server_message.server,
                        server_message.message.params,
                        reply,
                    );
                }
            }),
            events: EventSink::new(move |event| match event {
                HostEvent::Connected(server)
                | HostEvent::Disconnected(server)
                | HostEvent::SetsChanged(server) => {
                    for_events.sets_changed(&server);
                }
            }),
        }
    }

    /// Replaces the policy.
    pub fn set_policy(&self, policy: PushPolicy) {
        *self
            .0
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// Updates a server's channels on the bus: those of its enabled sets that push; none when it disconnected.
    pub(crate) fn sets_changed(&self, server: &ServerId) {
        let sets = self.0.targets.host.sets().load();
        let using = sets.get(server).map(|sets| {
            let using = sets.sets_using(Capability::PushEvents);
            let channels = using.map(|(name, held)| PushChannel {
                set: name.to_owned(),
                channel: channel_name(&server.server(), name),
                description: held.set.description.clone(),
            });
            channels.collect::<Vec<_>>()
        });
        let channels = using.unwrap_or_default();
        self.0
            .targets
            .events
            .set_push_channels(server.clone(), channels);
    }

    /// `push/event`. Answered once a recipient has accepted it, or none is left.
    pub(crate) fn handle_event(&self, server: ServerId, params: String, reply: Reply<McplAnswer>) {
        let Some((open, written)) = self.0.begin_push(server, params, reply) else {
            return;
        };
        task::spawn_detached("mcpl.push", async move {
            let shared = open.shared.clone();
            let outcome = match written.await {
                Ok(()) => shared.targets.deliver(&shared.policy(), &open.new).await,
                // Not delivered to anybody.
                Err(error) => DeliveryOutcome::not_delivered(format!(
                    "the event cannot be written down ({error}), and is not taken before it is"
                )),
            };
            open.conclude(outcome);
        });
    }
}

/// Resolves when the entry of an event is on disk.
type EntryStored = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send>>;

/// An event in flight. It is answered however its delivery ends.
struct InFlightPush {
    shared: Arc<SharedPush>,
    new: NewPush,
    reply: Option<Reply<McplAnswer>>,
}

impl InFlightPush {
    fn conclude(mut self, outcome: DeliveryOutcome) {
        self.set_outcome(outcome);
    }

    fn set_outcome(&mut self, outcome: DeliveryOutcome) {
        if let Some(reply) = self.reply.take() {
            self.shared.conclude(&self.new, outcome, reply);
        }
    }
}

impl Drop for InFlightPush {
    fn drop(&mut self) {
        self.set_outcome(DeliveryOutcome::unknown_outcome(
            "handing the event on broke off",
        ));
    }
}

/// An answer without delivery.
enum ImmediateAnswer {
    Error(McplError),
    Answer(PushAnswer),
}

impl SharedPush {
    fn lock(&self) -> MutexGuard<'_, PushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn policy(&self) -> Arc<PushPolicy> {
        let policy = self.policy.read();
        policy.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers at once if possible; otherwise starts the delivery.
    fn begin_push(
        self: &Arc<Self>,
        server: ServerId,
        params: String,
        reply: Reply<McplAnswer>,
    ) -> Option<(InFlightPush, EntryStored)> {
        let mut reply = Some(reply);
        let begun = self.check(&server, &params).and_then(|(content, rule)| {
            let written = self.remember((&server, &params), &rule, &mut reply)?;
            Ok(written.map(|written| (content, rule, written)))
        });
        let answer = match begun {
            Ok(None) => return None,
            Ok(Some((content, rule, written))) => {
                let new = NewPush {
                    server,
                    params,
                    content,
                    rule,
                };
                let open = InFlightPush {
                    shared: self.clone(),
                    new,
                    reply,
                };
                return Some((open, written));
            }
            Err(ImmediateAnswer::Error(error)) => Err(error),
            Err(ImmediateAnswer::Answer(answer)) => Ok(answer.to_json()),
        };
        if let Some(reply) = reply {
            reply.send(answer);
        }
        None
    }

    /// Validates an event without the stored events.
    fn check(
        &self,
        server: &ServerId,
        params: &str,
    ) -> Result<(Content, PushRule), ImmediateAnswer> {
        let bad = |why: String| ImmediateAnswer::Error(McplError::bad_params(why));
        let event = Event::parse(params).map_err(bad)?;
        let sets = self.targets.host.sets().load();
        let admitted = sets.find_usable_set(server, &event.feature_set, Capability::PushEvents);
        admitted.map_err(|error| {
            self.targets.record(
                server,
                &event,
                outcome_of_error(&error),
                Some(&error.message),
            );
            ImmediateAnswer::Error(error)
        })?;
        if parse_iso8601(&event.timestamp).is_none() {
            return Err(bad(
                "timestamp is no moment of ISO 8601, like 2026-01-23T10:30:00Z".into(),
            ));
        }
        let content = Content::parse(event.content().get());
        let content = content.map_err(|why| bad(format!("payload.content: {why}")))?;
        if params.len() > BYTES_MAX {
            return Err(ImmediateAnswer::Answer(PushAnswer::reject(format!(
                "the event has {} bytes; at most {BYTES_MAX} are taken: name a resource that holds the rest",
                params.len()
            ))));
        }
        let policy = self.policy();
        let rule = policy.rule(&names::set_name(&server.server(), &event.feature_set));
        Ok((content, rule.clone()))
    }

    /// Records a new event, and returns the write of its entry; `None` if the event is already in flight, and `reply` waits
    /// for its answer.
    fn remember(
        &self,
        (server, params): (&ServerId, &str),
        rule: &PushRule,
        reply: &mut Option<Reply<McplAnswer>>,
    ) -> Result<Option<EntryStored>, ImmediateAnswer> {
        let event = Event::parse(params).expect("it was read before");
        let (body, policy) = (EventBody::from_event(&event), self.policy());
        let (id, now_ms) = (&*event.event_id, unix_ms());
        let reject = |why: &str| Err(ImmediateAnswer::Answer(PushAnswer::reject(why)));
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = match state.memory.begin_event(server, id, body, now_ms) {
            PushLookup::New(entry) => entry,
            PushLookup::Answered(answer) => return Err(ImmediateAnswer::Answer(answer)),
            PushLookup::InFlight => {
                let waiting = state.waiters.entry((server.clone(), id.to_owned()));
                waiting.or_default().extend(reply.take());
                return Ok(None);
            }
            PushLookup::Conflict => {
                return reject(
                    "another event of this server had this eventId, and said something else: each event needs an id of its own",
                );
            }
            PushLookup::Full => {
                return reject("too many events of this server are under way: send it again later");
            }
        };
        let set = (server, &*event.feature_set);
        if let Err(why) = state
            .rates
            .try_take(set, (&policy, rule), (monotonic_now(), now_ms))
        {
            // Nothing of it is in the journal yet.
            let _ = state.memory.release(server, id);
            drop(guard);
            self.targets
                .record(server, &event, Outcome::Denied, Some(&why));
            return reject(&why);
        }
        // Under the lock: the entries of the journal have the order of the events.
        Ok(Some(Box::pin(
            self.journal.enqueue_append(entry.to_bytes()),
        )))
    }

    /// Answers all requesters once the answer is on disk, so that a retry after a crash gets the same one.
    fn conclude(&self, new: &NewPush, outcome: DeliveryOutcome, reply: Reply<McplAnswer>) {
        let event = Event::parse(&new.params).expect("it was read before");
        let (waiting, written) = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let (server, id) = (&new.server, &*event.event_id);
            let entry = if outcome.is_released {
                state.memory.release(server, id)
            } else {
                state.memory.set_answer(server, id, &outcome.answer)
            };
            let appended = entry.map(|entry| self.journal.enqueue_append(entry.to_bytes()));
            let compacted = state.memory.compact().map(|all| {
                let all = all.iter().map(MemoryEntry::to_bytes).collect();
                self.journal.enqueue_replace(all)
            });
            let waiting = state.waiters.remove(&(server.clone(), id.to_owned()));
            (waiting, (appended, compacted))
        };
        let text = outcome.answer.to_json();
        task::spawn_detached("mcpl.push_journal", async move {
            if let Some(appended) = written.0 {
                warn_if_not_written(appended.await);
            }
            for waiter in waiting.into_iter().flatten() {
                waiter.send(Ok(text.clone()));
            }
            reply.send(Ok(text));
            if let Some(compacted) = written.1 {
                warn_if_not_written(compacted.await);
            }
        });
    }
}

/// The delivery took effect, so it is answered anyway; after a restart only its start is known.
fn warn_if_not_written(written: Result<(), AppendError>) {
    if let Err(error) = written {
        tracing::warn!(%error, "the answer to a push event is not stored");
    }
}
