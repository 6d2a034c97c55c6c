use super::*;
use proptest::prelude::*;

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);

fn server(name: &str) -> ServerId {
    ServerId::new(name)
}

fn topic(channels: &str) -> Topic {
    Topic {
        channels: ChannelPattern::parse(channels).unwrap(),
        severity: Severity::Debug,
    }
}

fn following(channels: &[&str]) -> BTreeSet<Topic> {
    channels.iter().map(|name| topic(name)).collect()
}

fn asks(channels: &str) -> EventsEffect {
    EventsEffect::SubscribeUpstream {
        server: server("s"),
        topic: topic(channels),
    }
}

fn ends(id: &str) -> EventsEffect {
    EventsEffect::UnsubscribeUpstream {
        server: server("s"),
        id: id.into(),
    }
}

fn connected() -> EventSubscriptions<u8> {
    let mut all = EventSubscriptions::default();
    assert_eq!(all.server_up(&server("s"), 1), []);
    all
}

fn reach() -> BTreeSet<ServerId> {
    BTreeSet::from([server("s")])
}

#[test]
fn only_the_first_and_last_subscription_reach_the_server() {
    let mut all = connected();
    assert_eq!(
        all.subscribe(1, A, following(&["a.b"]), reach()),
        [asks("a.b")]
    );
    assert_eq!(all.subscribe(2, B, following(&["a.b"]), reach()), []);
    assert_eq!(
        all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), Some("u"))
            .0,
        []
    );
    assert_eq!(all.unsubscribe(1), []);
    assert_eq!(all.unsubscribe(2), [ends("u")]);
    assert!(all.is_empty());
}

#[test]
fn two_severities_of_one_channel_are_two_subscriptions() {
    let mut all = connected();
    let bad = Topic {
        severity: Severity::Error,
        ..topic("a.b")
    };
    all.subscribe(1, A, following(&["a.b"]), reach());
    let effects = all.subscribe(2, B, BTreeSet::from([bad.clone()]), reach());
    let server = server("s");
    assert_eq!(
        effects,
        [EventsEffect::SubscribeUpstream { server, topic: bad }]
    );
}

/// MGP-280: a server that comes back is asked again, and what it said in its life before is void.
#[test]
fn a_reconnected_server_gets_its_subscriptions_again() {
    let mut all = connected();
    all.subscribe(1, A, following(&["a.b"]), reach());
    all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), Some("u"));
    all.server_down(&server("s"));
    assert_eq!(
        all.attribute(&server("s"), 1, "u", "a.b", 7),
        EventAttribution::Unsolicited
    );
    assert_eq!(all.server_up(&server("s"), 2), [asks("a.b")]);
    assert_eq!(
        all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), Some("late"))
            .0,
        []
    );
    assert_eq!(
        all.attribute(&server("s"), 2, "late", "a.b", 7),
        EventAttribution::Buffered
    );
    let (_, early) = all.handle_subscribe_response(&server("s"), 2, &topic("a.b"), Some("v"));
    assert_eq!(early, [], "it was of another life");
}

/// MGP-280: a life that is replaced without a gap tells to its end of what it does; its own ids count for it
/// alone.
#[test]
fn a_replaced_connection_still_delivers_events() {
    let mut all = connected();
    all.subscribe(1, A, following(&["a.b"]), reach());
    all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), Some("u"));
    assert_eq!(all.server_up(&server("s"), 2), [asks("a.b")]);
    let told = EventAttribution::Topics(vec![topic("a.b")], 7);
    assert_eq!(all.attribute(&server("s"), 1, "u", "a.b", 7), told);
    all.handle_subscribe_response(&server("s"), 2, &topic("a.b"), Some("v"));
    assert_eq!(all.attribute(&server("s"), 1, "u", "a.b", 7), told);
    assert_eq!(all.attribute(&server("s"), 2, "v", "a.b", 7), told);
    assert_eq!(
        all.attribute(&server("s"), 2, "u", "a.b", 7),
        EventAttribution::Unsolicited
    );
    all.server_down(&server("s"));
    all.server_up(&server("s"), 3);
    assert_eq!(
        all.attribute(&server("s"), 1, "u", "a.b", 7),
        EventAttribution::Unsolicited
    );
}

fn at_node(agent: &str) -> ServerId {
    server("nas/s").instance(agent)
}

fn follows(agent: &str, channels: &str) -> EventsEffect {
    EventsEffect::SubscribeRemote {
        server: at_node(agent),
        topic: topic(channels),
    }
}

fn leaves(agent: &str, channels: &str) -> EventsEffect {
    EventsEffect::UnsubscribeRemote {
        server: at_node(agent),
        topic: topic(channels),
    }
}

/// A server of another node is asked for each agent, whatever others follow there; nothing is left of an agent that
/// follows nothing.
#[test]
fn a_remote_server_gets_one_subscription_per_agent() {
    let mut all = EventSubscriptions::<u8>::default();
    assert!(!all.supports_events(&at_node("alice")));
    assert_eq!(all.remote_server_up(&server("nas/s"), 1), []);
    assert!(
        all.supports_events(&at_node("alice"))
            && !all.supports_events(&server("nas/other").instance("alice"))
    );
    let reach = |agent: &str| BTreeSet::from([at_node(agent)]);
    let asked = all.subscribe(1, A, following(&["a.b"]), reach("alice"));
    assert_eq!(asked, [follows("alice", "a.b")]);
    let asked = all.subscribe(2, B, following(&["a.b"]), reach("bob"));
    assert_eq!(asked, [follows("bob", "a.b")]);
    assert_eq!(all.subscribe(3, B, following(&["a.b"]), reach("bob")), []);
    for (agent, id) in [("alice", "one"), ("bob", "two")] {
        all.handle_subscribe_response(&at_node(agent), 1, &topic("a.b"), Some(id));
    }
    let told = EventAttribution::Topics(vec![topic("a.b")], 7);
    assert_eq!(all.attribute(&at_node("bob"), 1, "two", "a.b", 7), told);
    assert_eq!(
        all.attribute(&at_node("bob"), 1, "one", "a.b", 7),
        EventAttribution::Unsolicited
    );
    assert_eq!(all.unsubscribe(3), []);
    assert_eq!(all.unsubscribe(2), [leaves("bob", "a.b")]);
    all.handle_subscribe_response(&at_node("bob"), 1, &topic("a.b"), Some("late"));
    let known: Vec<_> = all.servers().cloned().collect();
    assert_eq!(known, [server("nas/s"), at_node("alice")]);
}

/// What was refused is let go, too, and what is followed is asked for again in the next life, by all.
#[test]
fn a_reconnected_remote_server_gets_the_subscriptions_of_each_agent_again() {
    let mut all = EventSubscriptions::<u8>::default();
    all.remote_server_up(&server("nas/s"), 1);
    for (number, agent) in [(1, "alice"), (2, "bob")] {
        all.subscribe(
            number,
            A,
            following(&["a.b"]),
            BTreeSet::from([at_node(agent)]),
        );
    }
    all.handle_subscribe_response(&at_node("alice"), 1, &topic("a.b"), None);
    all.server_down(&server("nas/s"));
    assert_eq!(all.servers().count(), 0);
    let again = [follows("alice", "a.b"), follows("bob", "a.b")];
    assert_eq!(all.remote_server_up(&server("nas/s"), 2), again);
    all.handle_subscribe_response(&at_node("alice"), 2, &topic("a.b"), None);
    assert_eq!(all.unsubscribe(1), [leaves("alice", "a.b")]);
    let ended = all.drop_remote_instances(2, &server("nas/s"));
    assert_eq!(ended, [leaves("bob", "a.b")]);
    assert!(!all.reaches_any_server(2));
}

#[test]
fn a_late_subscription_is_ended_at_once() {
    let mut all = connected();
    all.subscribe(1, A, following(&["a.b"]), reach());
    assert_eq!(all.unsubscribe(1), []);
    assert_eq!(
        all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), Some("u"))
            .0,
        [ends("u")]
    );
}

#[test]
fn an_event_is_attributed_only_to_its_subscription() {
    let mut all = connected();
    all.subscribe(1, A, following(&["a.*"]), reach());
    assert_eq!(
        all.attribute(&server("s"), 1, "u", "a.x", 1),
        EventAttribution::Buffered
    );
    assert_eq!(
        all.attribute(&server("s"), 1, "u", "b.x", 2),
        EventAttribution::Unsolicited
    );
    let (_, early) = all.handle_subscribe_response(&server("s"), 1, &topic("a.*"), Some("u"));
    assert_eq!(early, [(vec![topic("a.*")], 1)]);
    let to = |id, channel| {
        EventSubscriptions::attribute(&mut all.clone(), &server("s"), 1, id, channel, 3)
    };
    assert_eq!(
        to("u", "a.y"),
        EventAttribution::Topics(vec![topic("a.*")], 3)
    );
    assert_eq!(to("u", "b.x"), EventAttribution::Unsolicited);
    assert_eq!(
        to("w", "a.x"),
        EventAttribution::Unsolicited,
        "another's id"
    );
    for _ in 0..2 * EARLY_EVENTS_MAX {
        all.subscribe(2, A, following(&["c"]), reach());
        all.attribute(&server("s"), 1, "?", "c", 4);
    }
    assert_eq!(
        all.attribute(&server("s"), 1, "?", "c", 4),
        EventAttribution::Unsolicited
    );
}

#[test]
fn a_rejected_channel_is_not_requested_again() {
    let mut all = connected();
    all.subscribe(1, A, following(&["a.b"]), reach());
    assert!(all.is_subscribe_pending(1));
    all.handle_subscribe_response(&server("s"), 1, &topic("a.b"), None);
    assert!(!all.is_subscribe_pending(1) && !all.is_delivered(1, &topic("a.b")));
    assert_eq!(all.subscribe(2, B, following(&["a.b"]), reach()), []);
}

#[test]
fn bounds_refuse() {
    let mut all: EventSubscriptions<()> = EventSubscriptions::default();
    for number in 0..PER_CONNECTION_MAX as u64 {
        all.subscribe(number, A, BTreeSet::new(), BTreeSet::new());
    }
    let one_more = |all: &EventSubscriptions<()>, who, channels| all.check_capacity(who, channels);
    assert_eq!(
        one_more(&all, A, 1),
        Err(EventSubscriptionLimit::PerConnection)
    );
    assert_eq!(
        one_more(&all, B, CHANNELS_MAX + 1),
        Err(EventSubscriptionLimit::Channels)
    );
    assert_eq!(one_more(&all, B, CHANNELS_MAX), Ok(()));
    for number in 100..100 + TOTAL_MAX as u64 {
        all.subscribe(
            number,
            ConnectionId(number),
            BTreeSet::new(),
            BTreeSet::new(),
        );
    }
    assert_eq!(one_more(&all, B, 1), Err(EventSubscriptionLimit::Total));
}

/// More channels than there is room for are not followed, and those that end make room for them.
#[test]
fn deferred_topics_are_followed_once_there_is_capacity() {
    let mut all: EventSubscriptions<()> = EventSubscriptions::default();
    let names: Vec<_> = (0..PER_SERVER_MAX + 1).map(|n| format!("a.x{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (last, first) = names.split_last().unwrap();
    let servers = ["s", "t", "u", "v", "w"].map(server);
    for (life, one) in (1..).zip(&servers) {
        all.server_up(one, life);
    }
    assert_eq!(UPSTREAM_TOTAL_MAX, 4 * PER_SERVER_MAX);
    for (number, one) in (0..).zip(&servers[..4]) {
        all.subscribe(number, A, following(first), BTreeSet::from([one.clone()]));
    }
    assert!(!all.has_deferred());
    assert_eq!(all.subscribe(7, B, following(&[last]), reach()), []);
    let fifth = BTreeSet::from([servers[4].clone()]);
    assert_eq!(all.subscribe(8, B, following(first), fifth), []);
    assert!(
        all.followed_topics(7).is_empty()
            && all.followed_topics(8).is_empty()
            && all.has_deferred()
    );
    let effects = all.unsubscribe(1);
    assert!(effects.contains(&EventsEffect::SubscriptionExtended(8)));
    assert!(
        !effects.contains(&EventsEffect::SubscriptionExtended(7)),
        "its server is full"
    );
    assert_eq!(all.followed_topics(8).len(), PER_SERVER_MAX);
    assert_eq!(all.unsubscribe(0), [EventsEffect::SubscriptionExtended(7)]);
    let (effects, _) = all.handle_subscribe_response(&servers[0], 1, &topic(first[0]), None);
    assert_eq!(
        effects,
        [asks(last)],
        "as soon as it was not asked for as much at once"
    );
    assert!(!all.has_deferred());
    for number in [2, 3, 7, 8] {
        all.unsubscribe(number);
    }
    assert!(all.is_empty() && all.followers.is_empty() && all.followed_count == 0);
}

/// Questions that nobody waits for any more take up the room of others only until they are answered.
#[test]
fn a_channel_is_requested_once_others_are_answered() {
    let mut all = connected();
    let names: Vec<_> = (0..PER_SERVER_MAX).map(|n| format!("a.x{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    all.subscribe(1, A, following(&names), reach());
    all.unsubscribe(1);
    assert_eq!(all.subscribe(2, B, following(&["b"]), reach()), []);
    let (effects, _) = all.handle_subscribe_response(&server("s"), 1, &topic("a.x0"), Some("u"));
    assert_eq!(effects, [ends("u"), asks("b")]);
}

#[test]
fn a_pattern_replaces_channels_that_it_covers() {
    let names = ["model.*", "model.usage", "tool.started", "model.*"];
    let channels: Vec<_> = names
        .iter()
        .filter_map(|name| ChannelPattern::parse(name))
        .collect();
    let topics = to_topics(&channels, Severity::Debug);
    assert_eq!(topics, following(&["model.*", "tool.started"]));
}

/// Against plain sets: once servers have answered all they were asked, each tells exactly what those follow
/// who reach it, and an event comes to the followers of its channel.
#[derive(Default)]
struct Model {
    follows: BTreeMap<u64, (BTreeSet<Topic>, BTreeSet<ServerId>)>,
    /// By server: its life, and what it was asked for and has not been told to end, with the ids it gave.
    upstream: BTreeMap<ServerId, (u64, Vec<(Topic, String)>)>,
    asked: Vec<(ServerId, u64, Topic)>,
    ids: u64,
}

impl Model {
    fn perform(&mut self, effects: Vec<EventsEffect>) {
        for effect in effects {
            match effect {
                EventsEffect::SubscribeUpstream { server, topic } => {
                    let life = self.upstream[&server].0;
                    self.asked.push((server, life, topic));
                }
                EventsEffect::UnsubscribeUpstream { server, id } => {
                    let (_, held) = self.upstream.get_mut(&server).unwrap();
                    let before = held.len();
                    held.retain(|(_, own)| **own != *id);
                    assert_eq!(
                        held.len() + 1,
                        before,
                        "only what is held is ended, and once"
                    );
                }
                EventsEffect::SubscribeRemote { server, .. }
                | EventsEffect::UnsubscribeRemote { server, .. } => {
                    panic!("{server} is no server of another node")
                }
                EventsEffect::SubscriptionExtended(number) => panic!("{number} had all it wanted"),
            }
        }
    }

    /// The server answers what it was asked first.
    fn answer(&mut self, all: &mut EventSubscriptions<u8>) -> bool {
        if self.asked.is_empty() {
            return false;
        }
        let (server, life, topic) = self.asked.remove(0);
        self.ids += 1;
        let id = self.ids.to_string();
        if let Some((now, held)) = self
            .upstream
            .get_mut(&server)
            .filter(|(now, _)| *now == life)
        {
            assert_eq!(*now, life);
            held.push((topic.clone(), id.clone()));
        }
        let (effects, _) = all.handle_subscribe_response(&server, life, &topic, Some(&id));
        self.perform(effects);
        true
    }

    fn check(&self, all: &mut EventSubscriptions<u8>) {
        for (server, (life, held)) in &self.upstream {
            let here = self
                .follows
                .values()
                .filter(|(_, reach)| reach.contains(server));
            let wanted: BTreeSet<_> = here.flat_map(|(topics, _)| topics.clone()).collect();
            let told: BTreeSet<_> = held.iter().map(|(topic, _)| topic.clone()).collect();
            assert_eq!(told, wanted);
            assert_eq!(held.len(), wanted.len(), "one subscription each");
            for (topic, id) in held {
                let name = topic.channels.as_str().replace('*', "x");
                let found = all.attribute(server, *life, id, &name, 0);
                assert_eq!(found, EventAttribution::Topics(vec![topic.clone()], 0));
                let followers: BTreeSet<u64> = all.followers(server, topic).collect();
                let model = self.follows.iter();
                let model = model.filter(|(_, (t, r))| t.contains(topic) && r.contains(server));
                assert_eq!(followers, model.map(|(number, _)| *number).collect());
            }
        }
    }
}

proptest! {
    #[test]
    fn servers_are_subscribed_exactly_to_followed_topics(
        steps in proptest::collection::vec((0u8..7, 0u64..5, 0u8..8, 0u8..4), 0..60)
    ) {
        let (mut all, mut model) = (EventSubscriptions::default(), Model::default());
        let mut lives = 0;
        for (step, number, channels, servers) in steps {
            let names = ["a.*", "a.b", "c"];
            let picked = names.iter().enumerate().filter(|(bit, _)| channels & (1 << bit) != 0);
            let topics: BTreeSet<_> = picked.map(|(_, name)| topic(name)).collect();
            let picked = ["s", "t"].iter().enumerate().filter(|(bit, _)| servers & (1 << bit) != 0);
            let reach: BTreeSet<_> = picked.map(|(_, name)| server(name)).collect();
            let one = server(["s", "t"][usize::from(servers) % 2]);
            let effects = match step {
                0 | 1 if !model.follows.contains_key(&number) => {
                    model.follows.insert(number, (topics.clone(), reach.clone()));
                    all.subscribe(number, ConnectionId(number % 2), topics, reach)
                }
                2 => {
                    model.follows.remove(&number);
                    all.unsubscribe(number)
                }
                3 => {
                    if let Some((_, now)) = model.follows.get_mut(&number) {
                        *now = reach.clone();
                    }
                    all.set_servers(number, reach)
                }
                4 => {
                    lives += 1;
                    model.upstream.insert(one.clone(), (lives, Vec::new()));
                    all.server_up(&one, lives)
                }
                5 => {
                    model.upstream.remove(&one);
                    all.server_down(&one);
                    Vec::new()
                }
                _ => {
                    model.answer(&mut all);
                    Vec::new()
                }
            };
            model.perform(effects);
        }
        while model.answer(&mut all) {}
        model.check(&mut all);
        for number in 0..5 {
            let effects = all.unsubscribe(number);
            model.perform(effects);
        }
        prop_assert!(all.is_empty());
        prop_assert!(model.upstream.values().all(|(_, held)| held.is_empty()), "nothing is left at a server");
    }
}
