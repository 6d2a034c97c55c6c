//! Which host an event goes to next, and what is known of it when all were asked (MCPL §9.4).

use std::collections::VecDeque;

/// Hosts that one event is handed to. Each may take the time of an answer twice, and the server waits for all.
pub(crate) const HOSTS_MAX: usize = 8;

/// What became of an event at one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReply {
    /// It took the event, and perhaps began an inference.
    Accepted(Option<String>),
    /// It did not take it, for this reason.
    Refused(String),
    /// It was not sent.
    NotSent,
    /// It was sent, and not answered in time.
    Silent,
    /// It was sent, and the host went away or answered something else.
    Lost(&'static str),
}

/// What became of an event at all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverOutcome {
    /// This one took it.
    Accepted(usize, Option<String>),
    /// All that read it refused; the last reason.
    Refused(String),
    /// One that did not answer may have taken it.
    Unknown(&'static str),
    /// No host was sent the event.
    NotSent,
}

/// The hosts that are asked for one event, in their order, until one takes it. The event has the same id each time, so
/// that a host that reads it twice, and two hosts that compare, know it as one.
#[derive(Clone, Debug)]
pub struct HostQueue {
    next: VecDeque<HostAttempt>,
    accepted: Option<(usize, Option<String>)>,
    last_refusal: Option<String>,
    unknown: Option<&'static str>,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAttempt {
    /// The place of the host.
    pub host: usize,
    /// It was asked before, and did not answer in time.
    is_retry: bool,
}

impl HostQueue {
    /// A queue for so many hosts, the first one first.
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

    /// Who is asked next; none when one took it, or all were asked.
    pub fn pop(&mut self) -> Option<HostAttempt> {
        match self.accepted {
            Some(_) => None,
            None => self.next.pop_front(),
        }
    }

    /// What it said. One that did not answer in time is asked once more, after all others.
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

    /// What became of the event.
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

    /// What became of it, and which hosts were asked.
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
    fn a_silent_host_is_asked_again_after_all_others_and_leaves_the_outcome_unknown() {
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
