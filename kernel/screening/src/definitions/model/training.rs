//! Trains the model. The table is what training gives; `MGP_TRAIN=1` writes it anew.

#![allow(
    clippy::disallowed_methods,
    reason = "it reads the corpus, and writes the table when it is asked to"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{SCALE, TABLE, WEIGHTS, norm, total};
use crate::definitions::texts::Role;
use crate::definitions::{
    HOLD_SCORE, Judgement, Surroundings, as_score, judge_definition, judge_instructions,
    sentence_features,
};

/// The features of one sentence.
type Features = Vec<u16>;

/// How often all sentences are gone through.
const ROUNDS: u16 = 12;
const AVERAGED: u16 = 6;
const STEP: f32 = 2.0;
const DECAY: f32 = 1.2e-3;
/// What a poisoned sentence counts: there are far more harmless ones.
const POSITIVE: f32 = 2.0;
/// Sentences with fewer letters are not told from others.
const ORDER_LETTERS_MIN: usize = 8;

struct Model {
    bias: f32,
    weights: Vec<f32>,
}

impl Model {
    fn logit(&self, features: &[u16]) -> f32 {
        let sum: f32 = features.iter().map(|f| self.weights[usize::from(*f)]).sum();
        sum / norm(features.len()) + self.bias
    }

    fn learn(&mut self, features: &[u16], is_poisoned: bool, step: f32) {
        let (wanted, weight) = if is_poisoned {
            (1.0, POSITIVE)
        } else {
            (0.0, 1.0)
        };
        let error = (wanted - sigmoid(self.logit(features))) * weight * step;
        let share = error / norm(features.len());
        for feature in features {
            let it = &mut self.weights[usize::from(*feature)];
            *it += share - DECAY * *it;
        }
        self.bias += error * 0.1;
    }

    /// The bias and the weights as the table has them.
    fn quantize(&self) -> Vec<i8> {
        let all = std::iter::once(&self.bias).chain(&self.weights);
        all.map(|it| (it * SCALE).round().clamp(-127.0, 127.0) as i8)
            .collect()
    }
}

/// By multiplication alone, so that each machine gets the same.
fn sigmoid(x: f32) -> f32 {
    let mut power = 1.0 - x.clamp(-30.0, 30.0) / 256.0;
    for _ in 0..8 {
        power *= power;
    }
    1.0 / (1.0 + power)
}

/// A server's definitions; of a poisoned one, at least one sentence is why.
struct Sample {
    /// Who wrote it.
    author: u64,
    definitions: Vec<Judgement>,
    /// The letters of the sentences that are why, if its author named them.
    order: Option<String>,
}

/// The letters of a text, which quotes have in common.
fn letters(text: &str) -> String {
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

impl Sample {
    fn sentences(&self) -> impl Iterator<Item = &Features> {
        let all = self.definitions.iter().flat_map(|it| &it.sentences);
        all.map(|(_, features)| features)
    }

    /// The sentences that are why, as far as they are known.
    fn orders(&self) -> impl Iterator<Item = &Features> {
        let all = self.definitions.iter().flat_map(|it| &it.sentences);
        let named = all.filter(|(text, _)| {
            let text = letters(text);
            let is_long = text.chars().count() >= ORDER_LETTERS_MIN;
            let order = self.order.as_ref().filter(|_| is_long);
            order.is_some_and(|order| order.contains(&text) || text.contains(order.as_str()))
        });
        named.map(|(_, features)| features)
    }

    /// Whether it is held without the model.
    fn is_certain(&self) -> bool {
        self.definitions.iter().any(|it| it.certain >= HOLD_SCORE)
    }

    fn score(&self, model: &Model) -> u32 {
        let scores = self.definitions.iter().map(|it| {
            let logits = it.sentences.iter().map(|(_, it)| model.logit(it));
            it.certain + as_score(total(logits))
        });
        scores.max().unwrap_or(0)
    }
}

fn train(poisoned: &[&Features], benign: &[&Features], bags: &[&Sample]) -> Model {
    let mut model = Model {
        bias: -2.0,
        weights: vec![0.0; WEIGHTS],
    };
    let mut order: Vec<(usize, bool)> = (0..poisoned.len()).map(|at| (at, true)).collect();
    order.extend((0..benign.len()).map(|at| (at, false)));
    let mut chance = 0x2545_f491_4f6c_dd1d_u64;
    let mut sum = Model {
        bias: 0.0,
        weights: vec![0.0; WEIGHTS],
    };
    for round in 0..ROUNDS {
        for at in (1..order.len()).rev() {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            order.swap(at, usize::try_from(chance % (at as u64 + 1)).unwrap());
        }
        let step = STEP / (1.0 + f32::from(round) * 0.5);
        let pause = (order.len() / bags.len().max(1)).max(1);
        for (count, (at, is_poisoned)) in order.iter().enumerate() {
            let features = if *is_poisoned {
                poisoned[*at]
            } else {
                benign[*at]
            };
            model.learn(features, *is_poisoned, step);
            // A bag's sentence is known only when the others were learnt.
            if round > 1 && count % pause == 0 && !bags.is_empty() {
                let bag = bags[count / pause % bags.len()].sentences();
                let worst = bag.max_by(|a, b| model.logit(a).total_cmp(&model.logit(b)));
                if let Some(worst) = worst {
                    model.learn(&worst.clone(), true, step);
                }
            }
        }
        // The mean of the last rounds: one order of the sentences counts less.
        if round >= ROUNDS - AVERAGED {
            sum.bias += model.bias / f32::from(AVERAGED);
            for (sum, weight) in sum.weights.iter_mut().zip(&model.weights) {
                *sum += weight / f32::from(AVERAGED);
            }
        }
    }
    sum
}

fn corpus(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The sentences of a file, with each alternative at least once.
fn expand(file: &str) -> Vec<(Role, String)> {
    let mut out = Vec::new();
    for line in corpus(file).lines().filter(|line| !line.starts_with("# ")) {
        let (role, line) = match line.split_at_checked(3) {
            Some(("a: ", rest)) => (Role::Argument, rest),
            Some(("i: ", rest)) => (Role::Instructions, rest),
            Some(("m: ", rest)) => (Role::Message, rest),
            Some(_) | None => (Role::Description, line),
        };
        let mut pieces: Vec<Vec<&str>> = Vec::new();
        for piece in line.split_inclusive(']') {
            match piece
                .split_once('[')
                .filter(|(_, choice)| choice.contains('|') && choice.ends_with(']'))
            {
                Some((before, choice)) => {
                    pieces.push(vec![before]);
                    pieces.push(choice.trim_end_matches(']').split('|').collect());
                }
                None => pieces.push(vec![piece]),
            }
        }
        let choices = pieces.iter().filter(|choice| choice.len() > 1).count();
        let most = pieces.iter().map(Vec::len).max().unwrap_or(1);
        for variant in 0..most * choices.clamp(1, 3) {
            let picked = pieces.iter().enumerate().map(|(at, choice)| {
                let turn = variant / choice.len() * (at / 2);
                choice[(variant + turn) % choice.len()]
            });
            out.push((role, picked.collect()));
        }
    }
    out
}

/// A poisoned sentence's names in backticks are arguments of its tool, as they are in definitions.
fn read_written(file: &str) -> Vec<Features> {
    let all = expand(file).into_iter().flat_map(|(role, text)| {
        let quoted = text.split('`').skip(1).step_by(2);
        let names = quoted.filter(|name| !name.contains([' ', '(', '.', '/']));
        let arguments: BTreeSet<String> = match file.contains("benign") {
            true => BTreeSet::new(),
            false => names.map(str::to_lowercase).collect(),
        };
        // A description may begin with it as well.
        let first = (role == Role::Description).then_some(true);
        let places = std::iter::once(false).chain(first);
        places
            .map(|is_function| sentence_features(&text, role, is_function, &arguments))
            .collect::<Vec<_>>()
    });
    all.collect()
}

fn read_samples(file: &str) -> Vec<Sample> {
    let all: Vec<Value> = serde_json::from_str(&corpus(file)).unwrap();
    let sample = |server: &Value| {
        let instructions = server["instructions"].as_str().map(judge_instructions);
        let lists = ["tools", "prompts"]
            .iter()
            .filter_map(|list| server[*list].as_array());
        let judged = lists
            .flatten()
            .map(|it| judge_definition(&it.to_string(), &Surroundings::default()));
        Sample {
            author: server["author"].as_u64().unwrap(),
            definitions: instructions.into_iter().chain(judged).collect(),
            order: server["order"].as_str().map(letters),
        }
    };
    all.iter().map(sample).collect()
}

/// Tools of real servers.
fn read_listed(file: &str) -> Vec<Features> {
    let all: Vec<Value> = serde_json::from_str(&corpus(file)).unwrap();
    let members = ["name", "title", "description", "inputSchema", "annotations"];
    let sentences = all.into_iter().flat_map(|mut tool| {
        tool.as_object_mut()
            .unwrap()
            .retain(|name, _| members.contains(&name.as_str()));
        let judged = judge_definition(&tool.to_string(), &Surroundings::default());
        judged.sentences.into_iter().map(|(_, features)| features)
    });
    sentences.collect()
}

/// The servers of all authors but one.
fn samples_without(all: &[Sample], without: Option<u64>) -> impl Iterator<Item = &Sample> {
    all.iter().filter(move |it| Some(it.author) != without)
}

struct Material {
    poisoned: Vec<Features>,
    harmless: Vec<Features>,
    bad: Vec<Sample>,
    good: Vec<Sample>,
}

impl Material {
    fn read() -> Self {
        let mut harmless = read_written("definitions/training_benign.txt");
        harmless.extend(read_listed("everyday_tools/tools.json"));
        harmless.extend(read_listed("tool_discovery/tools.json"));
        Self {
            poisoned: read_written("definitions/training_poisoned.txt"),
            harmless,
            bad: read_samples("definitions/poisoned.json"),
            good: read_samples("definitions/benign.json"),
        }
    }

    /// Trains without the servers of an author.
    fn train(&self, without: Option<u64>) -> Model {
        let good = samples_without(&self.good, without).flat_map(Sample::sentences);
        let benign: Vec<&Features> = self.harmless.iter().chain(good).collect();
        let named = samples_without(&self.bad, without).flat_map(Sample::orders);
        let poisoned: Vec<&Features> = self.poisoned.iter().chain(named).collect();
        let bags: Vec<&Sample> = samples_without(&self.bad, without)
            .filter(|sample| !sample.is_certain() && sample.orders().next().is_none())
            .collect();
        train(&poisoned, &benign, &bags)
    }

    /// The scores of the servers of each author by the model of the others: poisoned ones, and harmless ones.
    fn cross_validate(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut bad, mut good) = (Vec::new(), Vec::new());
        let authors: BTreeSet<u64> = self.bad.iter().map(|sample| sample.author).collect();
        for author in authors {
            let model = self.train(Some(author));
            let scores = |all: &[Sample]| -> Vec<u32> {
                let own = all.iter().filter(|sample| sample.author == author);
                own.map(|sample| sample.score(&model)).collect()
            };
            let of_author = (scores(&self.bad), scores(&self.good));
            let held = |all: &[u32]| all.iter().filter(|score| **score >= HOLD_SCORE).count();
            println!(
                "author {author}: {} of {} caught, {} of {} harmless servers held",
                held(&of_author.0),
                of_author.0.len(),
                held(&of_author.1),
                of_author.1.len()
            );
            bad.extend(of_author.0);
            good.extend(of_author.1);
        }
        (bad, good)
    }
}

/// EXT-246: the model's table is what training on the sentences of the repository gives.
#[test]
fn table_is_what_training_gives() {
    let material = Material::read();
    let table = material.train(None).quantize();
    let table: Vec<u8> = table.into_iter().map(i8::cast_unsigned).collect();
    if std::env::var_os("MGP_TRAIN").is_some() {
        let (bad, mut good) = material.cross_validate();
        good.sort_by(|a, b| b.cmp(a));
        for held in (0..good.len() / 25).step_by(4) {
            let caught = bad.iter().filter(|score| **score > good[held]).count();
            println!(
                "above {}: {held} of {} harmless servers held, {caught} of {} caught",
                good[held],
                good.len(),
                bad.len()
            );
        }
        let file: PathBuf = [
            env!("CARGO_MANIFEST_DIR"),
            "src/definitions/model/weights.bin",
        ]
        .iter()
        .collect();
        std::fs::write(file, table).unwrap();
        return;
    }
    assert!(
        table == TABLE,
        "run this test with MGP_TRAIN=1, which writes the table"
    );
}
