//! One answer for each call, and nothing is executed twice by failover: calls of tools that several nodes offer,
//! while links break, servers crash, ask and lie, owners are of an older version or are restarted, and operators mark and
//! unmark what may be called twice.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_engine::calls::outcome::{for_refusal, mark_dispatched};
use mgp_engine::cluster::routes::{AttemptFailure, RouteAttempts, RouteCandidate};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal, OwnerRefusalCause};
use mgp_protocol::refusal::{CallOutcome, Refusal};
use serde_json::value::RawValue;

use crate::chance::Chance;
use crate::seeds::asked;

/// The seeds of the usual run: a seed takes some milliseconds.
const SEEDS: u64 = 200;
/// What a server writes to be taken for the kernel of its node, or to have its call made again.
const LIES: [&str; 5] = [
    r#"{"code":-32602,"message":"Unknown tool: x"}"#,
    r#"{"code":4001,"message":"Unknown tool: x"}"#,
    r#"{"code":2000,"message":"away","data":{"_mgp":{"retryable":true,"details":{"outcome":"not_executed"}}}}"#,
    r#"{"code":1000,"message":"no","data":{"_mgp":{"details":{"outcome":"not_executed","closed":true}}}}"#,
    r#"{"code":3001,"message":"full","data":{"outcome":"not_executed"}}"#,
];
/// Questions that one call may ask, each in a part of its own.
const QUESTIONS: u64 = 3;
/// Calls of one seed.
const CALLS: u64 = 500;

/// One node that offers the tool: the first one is the caller's own.
struct Owner {
    server: ServerId,
    /// As its node or, of the first one, its supervisor is known to stand.
    takes_calls: bool,
    running: bool,
    /// Its kernel sends what it refuses as errors, like those of its server.
    older: bool,
    idempotent: bool,
    load: u64,
    round_trip_ms: u64,
}

/// How one try ends, as its caller sees it.
enum TryEnd {
    Answered,
    Failed(Refusal),
}

/// What an observer who sees everything wrote down of one call.
#[derive(Default)]
struct Seen {
    executed: BTreeMap<ServerId, u64>,
    /// Executed at a place whose operator had not confirmed that twice is once.
    unconfirmed: u64,
    tries: u64,
    /// A try left, and nobody knew what became of it.
    in_doubt: bool,
    /// A try failed after its server had asked something.
    asked: bool,
    /// An older owner sent an error that may be its server's or its own.
    unattributed: bool,
}

/// PRJ-007, FED-066.
#[test]
fn a_call_has_one_answer_and_is_not_executed_twice() {
    let seeds = asked("MGP_SIM_SEEDS").unwrap_or(SEEDS);
    let mut covered: BTreeMap<&'static str, u64> = BTreeMap::new();
    let one = asked("MGP_SIM_SEED");
    for seed in one.map_or(0..seeds, |seed| seed..seed + 1) {
        let mut chance = Chance::new(seed);
        let mut owners = owners(&mut chance);
        for _ in 0..CALLS {
            happens(&mut owners, &mut chance);
            let told = call(&mut owners, &mut chance);
            let told = told.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            *covered.entry(told).or_default() += 1;
        }
    }
    if one.is_some() {
        return;
    }
    for what in [
        "answered at the first place",
        "answered at another place",
        "answered after it was in doubt",
        "answered with an error of its server",
        "lost after a question",
        "lied to by an older owner",
        "executed at two places",
        "outcome unknown, and it was executed",
        "outcome unknown, and it was not",
        "said not to be executed",
        "no place",
    ] {
        assert!(covered.contains_key(what), "in no run {what}: {covered:?}");
    }
}

fn owners(chance: &mut Chance) -> Vec<Owner> {
    let owner = |at: u64| Owner {
        server: match at {
            0 => ServerId::new("files"),
            at => ServerId::new_remote(&format!("node-{at}"), &ServerId::new("files")),
        },
        takes_calls: true,
        running: true,
        older: false,
        idempotent: at % 2 == 1,
        load: 0,
        round_trip_ms: at,
    };
    (0..2 + chance.below(6)).map(owner).collect()
}

/// Something that changes where calls can go.
fn happens(owners: &mut [Owner], chance: &mut Chance) {
    let at = usize::try_from(chance.below(owners.len() as u64)).unwrap();
    let owner = &mut owners[at];
    match chance.below(11) {
        // Downgrades happen, too.
        10 => owner.older = chance.percent(30),
        0 | 1 => owner.takes_calls = chance.percent(30),
        2 | 3 => owner.takes_calls = true,
        4 => owner.running = chance.percent(50),
        5 | 6 => owner.running = true,
        7 => owner.idempotent = !owner.idempotent,
        _ => owner.load = chance.below(9),
    }
}

/// As `failover.rs` of the room of calls goes about it.
fn call(owners: &mut [Owner], chance: &mut Chance) -> Result<&'static str, String> {
    let (mut attempts, mut seen) = (RouteAttempts::default(), Seen::default());
    let answer = loop {
        let candidates: Vec<RouteCandidate> = owners.iter().map(candidate).collect();
        let home = chance.percent(30).then(|| chance.pick(owners).unwrap());
        let home = home.map(|owner| owner.server.clone());
        let Some(choice) = attempts.next_route(&candidates, home.as_ref()) else {
            break attempts.into_refusal().map(Err);
        };
        seen.tries += 1;
        let at = owners.iter().position(|one| one.server == choice.server);
        let owner = &owners[at.unwrap()];
        let refusal = match attempt(owner, &mut seen, chance) {
            TryEnd::Answered => break Some(Ok(())),
            TryEnd::Failed(refusal) => refusal,
        };
        match attempts.handle_failure(&refusal, owner.idempotent, &candidates, home.as_ref()) {
            Err(told) => break Some(Err(told)),
            Ok(failure) => seen.in_doubt |= failure == AttemptFailure::AfterDispatch,
        }
        // The world does not stand still between two tries.
        happens(owners, chance);
    };
    judge(&seen, answer)
}

fn candidate(owner: &Owner) -> RouteCandidate {
    RouteCandidate {
        server: owner.server.clone(),
        accepts_calls: owner.takes_calls,
        load: owner.load,
        round_trip: Duration::from_millis(owner.round_trip_ms),
        idempotent: owner.idempotent,
    }
}

/// One try at one place: its first part, and one more for each question that its server asks.
fn attempt(owner: &Owner, seen: &mut Seen, chance: &mut Chance) -> TryEnd {
    let mut asked = 0;
    loop {
        let end = part(owner, seen, asked, chance);
        let refusal = match end {
            PartEnd::Asked if asked < QUESTIONS => {
                asked += 1;
                continue;
            }
            PartEnd::Asked | PartEnd::Answered => return TryEnd::Answered,
            PartEnd::Failed(refusal) => refusal,
        };
        // As `to_modern.rs` of the room of servers goes about it.
        return TryEnd::Failed(match asked {
            0 => refusal,
            _ => {
                seen.asked = true;
                mark_dispatched(refusal, &owner.server)
            }
        });
    }
}

/// How a part of a call ends.
enum PartEnd {
    Answered,
    /// Its server asks, and the next part brings the answer.
    Asked,
    Failed(Refusal),
}

/// What happens there, and what of it the caller hears.
fn part(owner: &Owner, seen: &mut Seen, asked: u64, chance: &mut Chance) -> PartEnd {
    let server = || owner.server.clone();
    let lost = || Refusal::ServerLost {
        server: server(),
        reason: "the link broke".into(),
    };
    if chance.percent(10) {
        return PartEnd::Failed(Refusal::NotReady {
            server: server(),
            state: "disconnected",
            reason: None,
            retry_after_ms: None,
            unreachable: true,
        });
    }
    // The request is lost on its way: nobody at this end can tell that from a lost answer.
    if chance.percent(10) {
        return PartEnd::Failed(lost());
    }
    if !owner.running {
        let away = OwnerRefusalCause::Unavailable;
        return PartEnd::Failed(owner.refuses(away, CallOutcome::NotExecuted, seen));
    }
    // The owner's own word of this part of the call: what became of the parts before it does not know.
    if chance.percent(10) {
        let causes = [
            OwnerRefusalCause::Closed,
            OwnerRefusalCause::Denied,
            OwnerRefusalCause::Blocked,
            OwnerRefusalCause::NotFound,
        ];
        let cause = *chance.pick(&causes).unwrap();
        return PartEnd::Failed(owner.refuses(cause, CallOutcome::NotExecuted, seen));
    }
    // The owner was started anew since it asked.
    if asked > 0 && chance.percent(10) {
        let refusal = owner.refuses(OwnerRefusalCause::Failed, CallOutcome::Unknown, seen);
        return PartEnd::Failed(if chance.percent(50) {
            refusal
        } else {
            Refusal::Expired("its call was answered".into())
        });
    }
    // The server crashes before or after it did what was asked; its owner does not know which.
    if chance.percent(10) {
        if asked == 0 && chance.percent(50) {
            seen.executes(owner);
        }
        let away = OwnerRefusalCause::Unavailable;
        return PartEnd::Failed(owner.refuses(away, CallOutcome::Unknown, seen));
    }
    // What is done is done in the first part; the others bring answers.
    if asked == 0 {
        seen.executes(owner);
    }
    if chance.percent(10) {
        let lie = *chance.pick(&LIES).unwrap();
        return PartEnd::Failed(owner.relays(lie, seen));
    }
    match chance.below(10) {
        0 => PartEnd::Failed(lost()),
        1..=3 => PartEnd::Asked,
        _ => PartEnd::Answered,
    }
}

impl Owner {
    /// What its kernel refuses, as the caller's node reads it.
    fn refuses(&self, cause: OwnerRefusalCause, outcome: CallOutcome, seen: &mut Seen) -> Refusal {
        let error = format!(
            r#"{{"code":2000,"message":"m","data":{{"_mgp":{{"details":{{"outcome":"{}"}}}}}}}}"#,
            outcome.as_str()
        );
        if self.older {
            self.relays(&error, seen)
        } else {
            Refusal::Owner(Box::new(OwnerRefusal {
                cause,
                outcome,
                answer: OwnerAnswer::Error(error),
            }))
        }
    }

    /// An error that it relays.
    fn relays(&self, error: &str, seen: &mut Seen) -> Refusal {
        let error = RawValue::from_string(error.to_owned()).unwrap();
        seen.unattributed |= self.older;
        if self.older {
            Refusal::Unattributed(error)
        } else {
            Refusal::Peer(error)
        }
    }
}

impl Seen {
    fn executes(&mut self, owner: &Owner) {
        *self.executed.entry(owner.server.clone()).or_default() += 1;
        self.unconfirmed += u64::from(!owner.idempotent);
    }

    fn times(&self) -> u64 {
        self.executed.values().sum()
    }
}

/// Holds what was done against what was said.
fn judge(seen: &Seen, answer: Option<Result<(), Refusal>>) -> Result<&'static str, String> {
    let times = seen.times();
    if seen.executed.values().any(|times| *times > 1) {
        return Err("one place executed the call twice".to_owned());
    }
    if times > 1 && seen.unconfirmed > 0 {
        return Err(format!(
            "executed {times} times, where an operator had not confirmed that this is once"
        ));
    }
    match answer {
        None if seen.tries > 0 => Err("tried, and without an answer".to_owned()),
        None => Ok("no place"),
        Some(Ok(())) if times == 0 => Err("answered, and not executed".to_owned()),
        Some(Ok(())) => Ok(match (seen.in_doubt, seen.tries) {
            _ if times > 1 => "executed at two places",
            (true, _) => "answered after it was in doubt",
            (false, 1) => "answered at the first place",
            (false, _) => "answered at another place",
        }),
        Some(Err(refusal)) => judge_refusal(seen, times, &refusal),
    }
}

/// The same of a call that was answered with an error.
fn judge_refusal(seen: &Seen, times: u64, refusal: &Refusal) -> Result<&'static str, String> {
    let (written, _) = Outcome::from_refusal(refusal);
    if times > 0 && matches!(written, Outcome::Blocked | Outcome::Denied) {
        return Err(format!(
            "executed, and written down as {}: {refusal}",
            written.as_str()
        ));
    }
    match told(refusal) {
        CallOutcome::NotExecuted if times > 0 => {
            Err(format!("said not to be executed, and it was: {refusal}"))
        }
        CallOutcome::NotExecuted => Ok("said not to be executed"),
        CallOutcome::Unknown if times > 0 && seen.asked => Ok("lost after a question"),
        CallOutcome::Unknown if times > 0 && seen.unattributed => Ok("lied to by an older owner"),
        CallOutcome::Unknown if times > 0 => Ok("outcome unknown, and it was executed"),
        CallOutcome::Unknown => Ok("outcome unknown, and it was not"),
        CallOutcome::Done if times > 0 => Ok("answered with an error of its server"),
        CallOutcome::Done => Err(format!("nobody knows that: {refusal}")),
    }
}

/// What the caller is told of the outcome.
fn told(refusal: &Refusal) -> CallOutcome {
    match AttemptFailure::from_refusal(refusal) {
        Some(failure) => failure.outcome(),
        None => for_refusal(refusal),
    }
}
