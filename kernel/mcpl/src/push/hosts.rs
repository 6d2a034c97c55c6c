//! Offers an event to hosts in order, and derives its outcome (MCPL §9.4).

use std::collections::VecDeque;

/// Most hosts per event. Each may take the answer timeout twice, while the server waits.
pub(crate) const HOSTS_MAX: usize = 8;

/// The outcome of an event at one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReply {
    /// Accepted, perhaps with an inference.
    Accepted(Option<String>),
    /// Rejected, for this reason.
    Refused(String),
    /// Not sent.
    NotSent,
    /// Sent, and timed out.
    Silent,
    /// Sent, and the host disconnected or answered something else.
    Lost(&'static str),
}

/// The outcome of an event at all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverOutcome {
    /// This host accepted it.
    Accepted(usize, Option<String>),
    /// All hosts that answered rejected it; the last reason.
    Refused(String),
    /// A host that did not answer may have accepted it.
    Unknown(&'static str),
    /// Sent to no host.
    NotSent,
}

/// Offers one event to hosts in order, until one accepts it. The event keeps its id, so that hosts can deduplicate it.
#[derive(Clone, Debug)]
pub struct HostQueue {
    next: VecDeque<HostAttempt>,
    accepted: Option<(usize, Option<String>)>,
    last_refusal: Option<String>,
    unknown: Option<&'static str>,
}

/// The next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAttempt {
    /// Index of the host.
    pub host: usize,
    /// The first attempt timed out.
    is_retry: bool,
}

impl HostQueue {
    /// A queue of this many hosts.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        let all = (0..hosts.min(HOSTS_MAX)).map(|host| HostAttempt {
            host,
            is_retry: false,
        });
        Self {
            next: all.collect(),
            accepted: None,
            last_refusal: None,
            unknown: None,
        }
    }

    /// The next attempt; none once a host accepted, or all have answered.
    pub fn pop(&mut self) -> Option<HostAttempt> {
        match self.accepted {
            Some(_) => None,
            None => self.next.pop_front(),
        }
    }

    /// Records a reply. A host that timed out is tried once more, after all others.
    pub fn record_reply(
        &mut self,
        HostAttempt {
            host,
            is_retry: again,
        }: HostAttempt,
        reply: HostReply,
    ) {
        match reply {
            HostReply::NotSent => {}
            HostReply::Accepted(inference) => self.accepted = Some((host, inference)),
            HostReply::Refused(why) => self.last_refusal = Some(why),
            HostReply::Silent => {
                self.unknown = Some("the agent did not answer in time");
                if !again {
                    self.next.push_back(HostAttempt {
                        host,
                        is_retry: true,
                    });
                }
            }
            HostReply::Lost(why) => self.unknown = Some(why),
        }
    }

    /// The outcome of the event.
    #[must_use]
    pub fn into_outcome(self) -> HandOverOutcome {
        if let Some((host, inference)) = self.accepted {
            return HandOverOutcome::Accepted(host, inference);
        }
        match (self.unknown, self.last_refusal) {
            (Some(why), _) => HandOverOutcome::Unknown(why),
            (None, Some(why)) => HandOverOutcome::Refused(why),
            (None, None) => HandOverOutcome::NotSent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome, and the hosts tried.
    fn hand_over(
        hosts: usize,
        reply: impl Fn(usize, usize) -> HostReply,
    ) -> (HandOverOutcome, Vec<usize>) {
        let (mut queue, mut asked) = (HostQueue::new(hosts), Vec::new());
        while let Some(turn) = queue.pop() {
            let before = asked.iter().filter(|one| **one == turn.host).count();
            asked.push(turn.host);
            queue.record_reply(turn, reply(turn.host, before));
        }
        (queue.into_outcome(), asked)
    }

    #[test]
    fn an_event_that_was_not_sent_to_a_host_goes_to_the_next() {
        let (outcome, asked) = hand_over(3, |host, _| match host {
            2 => HostReply::Accepted(None),
            _ => HostReply::NotSent,
        });
        assert_eq!(
            (outcome, asked),
            (HandOverOutcome::Accepted(2, None), vec![0, 1, 2])
        );
        let (outcome, _) = hand_over(2, |_, _| HostReply::NotSent);
        assert_eq!(outcome, HandOverOutcome::NotSent);
    }

    #[test]
    fn a_silent_host_is_retried_last_and_leaves_the_outcome_unknown() {
        let (outcome, asked) = hand_over(2, |host, _| match host {
            0 => HostReply::Silent,
            _ => HostReply::Accepted(Some("i".into())),
        });
        assert_eq!(outcome, HandOverOutcome::Accepted(1, Some("i".into())));
        assert_eq!(asked, [0, 1]);
        let (outcome, asked) = hand_over(2, |host, _| match host {
            0 => HostReply::Silent,
            _ => HostReply::Refused("no".into()),
        });
        assert!(
            matches!(outcome, HandOverOutcome::Unknown(_)),
            "{outcome:?}"
        );
        assert_eq!(asked, [0, 1, 0]);
        let (outcome, _) = hand_over(2, |host, before| match (host, before) {
            (0, 0) => HostReply::Silent,
            (0, _) => HostReply::Accepted(None),
            _ => HostReply::Refused("no".into()),
        });
        assert_eq!(outcome, HandOverOutcome::Accepted(0, None));
        let (outcome, asked) = hand_over(2, |_, _| HostReply::Lost("it left"));
        assert_eq!(
            (outcome, asked),
            (HandOverOutcome::Unknown("it left"), vec![0, 1])
        );
        let (_, asked) = hand_over(100, |_, _| HostReply::Silent);
        assert_eq!(asked.len(), 2 * HOSTS_MAX);
    }
}
