//! Random histories: undo is exact, and the recorded changes rebuild the same model.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

type Line = Vec<Vec<u8>>;

fn key() -> impl Strategy<Value = Vec<u8>> {
    select(vec!["a", "b", "c", "d", "e"]).prop_map(|key| key.as_bytes().to_vec())
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => select(vec!["w", "x", "y", "z", "1", "2", "-3", ""]).prop_map(|text| text.as_bytes().to_vec()),
        1 => Just(vec![b'L'; 40]),
    ]
}

fn number() -> impl Strategy<Value = Vec<u8>> {
    select(vec!["-100", "-2", "-1", "0", "1", "2", "3", "100"]).prop_map(|text| text.as_bytes().to_vec())
}

fn score() -> impl Strategy<Value = Vec<u8>> {
    select(vec!["-inf", "-1", "-0", "0", "1", "1.5", "2", "inf"]).prop_map(|text| text.as_bytes().to_vec())
}

fn word(text: &'static str) -> BoxedStrategy<Vec<u8>> {
    Just(text.as_bytes().to_vec()).boxed()
}

/// A command from its grammar: `k` key, `e` element, `n` number, `s` score, anything else itself.
fn shape(grammar: &'static str) -> BoxedStrategy<Line> {
    grammar
        .split(' ')
        .map(|part| match part {
            "k" => key().boxed(),
            "e" => element().boxed(),
            "n" => number().boxed(),
            "s" => score().boxed(),
            text => word(text),
        })
        .collect::<Vec<_>>()
        .boxed()
}

const SHAPES: &[&str] = &[
    "APPEND k e",
    "SETRANGE k n e",
    "SETRANGE k 38 e",
    "DECRBY k n",
    "DEL k",
    "DEL k k",
    "EXPIRE k n",
    "GET k",
    "GETDEL k",
    "HDEL k e",
    "HDEL k e e e",
    "HINCRBY k e n",
    "HSET k e e",
    "HSET k e e e e",
    "HSETNX k e e",
    "INCR k",
    "INCRBY k n",
    "LMOVE k k LEFT RIGHT",
    "LMOVE k k RIGHT LEFT",
    "LMOVE k k LEFT LEFT",
    "LPOP k",
    "LPOP k n",
    "LPUSH k e",
    "LPUSH k e e e",
    "LREM k n e",
    "LSET k n e",
    "LTRIM k n n",
    "PERSIST k",
    "PEXPIRE k n",
    "PEXPIRE k 100",
    "RENAME k k",
    "RPOP k",
    "RPOP k n",
    "RPUSH k e",
    "RPUSH k e e e",
    "SADD k e",
    "SADD k e e e",
    "SET k e",
    "SET k n",
    "SET k e PX 100",
    "SET k e KEEPTTL",
    "SET k e NX",
    "SET k e XX GET",
    "SETNX k e",
    "SREM k e",
    "SREM k e e e",
    "ZADD k s e",
    "ZADD k s e s e",
    "ZADD k XX CH s e",
    "ZADD k GT s e",
    "ZADD k NX s e",
    "ZINCRBY k s e",
    "ZPOPMAX k",
    "ZPOPMIN k n",
    "ZREM k e",
    "ZREM k e e e",
    "ZREMRANGEBYRANK k n n",
    "ZREMRANGEBYSCORE k s s",
    "ZRANGE k n n",
    "LRANGE k n n",
    "PUBLISH k e",
];

fn line() -> impl Strategy<Value = Line> {
    proptest::strategy::Union::new(SHAPES.iter().map(|grammar| shape(grammar)))
}

/// How a script ends, and how far time moves before it.
#[derive(Debug, Clone)]
struct Step {
    lines: Vec<Line>,
    fails: bool,
    pass_ms: i64,
    sweep: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let pass = prop_oneof![4 => Just(0), 2 => 1..150_i64, 1 => 1000..5000_i64];
    (proptest::collection::vec(line(), 1..8), prop::bool::weighted(0.3), pass, prop::bool::weighted(0.2))
        .prop_map(|(lines, fails, pass_ms, sweep)| Step { lines, fails, pass_ms, sweep })
}

fn run(model: &mut Model, lines: &[Line]) {
    for line in lines {
        let words: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        // Refusals are part of a history; what they left is what the properties look at.
        let _ = call(model, &words);
    }
}

/// What the journal would hold: keys, then elements, whatever order they were made in.
#[derive(Default)]
struct Disk {
    keys: BTreeMap<Bytes, Change>,
    elements: BTreeMap<(Generation, String), Change>,
}

impl Disk {
    fn write(&mut self, change: &Change) {
        match change {
            Change::PutString { key, .. } | Change::PutCollection { key, .. } => {
                self.keys.insert(key.clone(), change.clone());
            }
            Change::Remove { key, generation } => {
                self.keys.remove(key);
                if let Some(dead) = generation {
                    self.elements.retain(|(generation, _), _| generation != dead);
                }
            }
            Change::PutElement { generation, element, .. } => {
                self.elements.insert((*generation, format!("{element:?}")), change.clone());
            }
            Change::RemoveElement { generation, element } => {
                self.elements.remove(&(*generation, format!("{element:?}")));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rolled_back_script_leaves_no_trace(before in proptest::collection::vec(line(), 0..40), script in proptest::collection::vec(line(), 1..30)) {
        let mut model = Model::new();
        model.begin(START_US);
        run(&mut model, &before);
        model.commit();
        let expected = snapshot(&model);
        let generation = model.next_generation();
        // Half of what has an expiry has passed it.
        model.begin(START_US + 60_000);
        run(&mut model, &script);
        model.rollback();
        prop_assert_eq!(snapshot(&model), expected);
        prop_assert_eq!(model.next_generation(), generation);
        prop_assert!(model.commit().changes.is_empty());
    }

    #[test]
    fn the_recorded_changes_rebuild_the_model(steps in proptest::collection::vec(step(), 1..25)) {
        let mut live = Model::new();
        let mut replayed = Model::new();
        let mut disk = Disk::default();
        let mut now_us = START_US;
        for step in steps {
            now_us += step.pass_ms * 1000;
            let mut changes = Vec::new();
            if step.sweep {
                changes.extend(live.expire_some(now_us / 1000, 3).changes);
            }
            live.begin(now_us);
            run(&mut live, &step.lines);
            if step.fails {
                live.rollback();
            } else {
                changes.extend(live.commit().changes);
            }
            for change in changes {
                disk.write(&change);
                replayed.restore(change);
            }
            prop_assert_eq!(snapshot(&replayed), snapshot(&live));
        }
        let alive: Vec<_> = snapshot(&live).keys.into_values().filter_map(|entry| entry.generation).collect();
        for (generation, element) in disk.elements.keys() {
            prop_assert!(alive.contains(generation), "{element} of dead {generation} was never named as garbage");
        }
        let mut loaded = Model::new();
        for change in disk.keys.into_values().chain(disk.elements.into_values()) {
            loaded.restore(change);
        }
        prop_assert_eq!(snapshot(&loaded), snapshot(&live));
        prop_assert!(alive.iter().all(|generation| loaded.next_generation() > *generation));
    }
}

#[test]
fn changes_are_proportional_to_the_elements_concerned() {
    let mut model = Model::new();
    let items: Vec<Vec<u8>> = (0..100_000).map(|number: u32| number.to_string().into_bytes()).collect();
    model.begin(START_US);
    for chunk in items.chunks(1000) {
        let words: Vec<&[u8]> =
            [b"RPUSH".as_slice(), b"l"].into_iter().chain(chunk.iter().map(Vec::as_slice)).collect();
        call(&mut model, &words).unwrap();
    }
    model.commit();
    for (line, expected) in [
        ("RPUSH l x", 1),
        ("LPUSH l x", 1),
        ("LPOP l", 1),
        ("LSET l 50000 y", 1),
        ("LREM l 1 70000", 1),
        ("LTRIM l 2 -1", 2),
        ("LMOVE l l LEFT RIGHT", 2),
        ("PEXPIRE l 1000", 1),
        ("RENAME l m", 2),
        ("DEL m", 1),
    ] {
        model.begin(START_US);
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        call(&mut model, &words).unwrap();
        assert_eq!(model.commit().changes.len(), expected, "{line}");
    }
}

#[test]
fn garbage_of_an_unknown_generation_is_dropped_and_its_number_never_reused() {
    let mut model = Model::new();
    model.restore(Change::PutElement { generation: 900, element: Element::Seat(0), value: "x".into() });
    assert_eq!(model.len(), 0);
    assert_eq!(model.next_generation(), 901);
}
