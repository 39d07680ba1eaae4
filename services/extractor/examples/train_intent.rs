//! Trains the head that judges whether a sentence asks to be written down, from the examples in
//! `data/intent`, and writes its weights beside them. With `check` it writes nothing and says how well a
//! head does on examples that it was not trained on: five times, each time without a fifth of the examples
//! and of the statements.
//!
//! A sentence that holds one of the listed statements is shown with others in its place, and every
//! statement is shown without a request as often as with one: what is to be written down says nothing about
//! whether somebody asks for it.

use std::path::{Path, PathBuf};

use anamnesis_extractor::intent::features::{GAP, fingerprint, views};
use anamnesis_extractor::intent::head::{About, Head};
use anamnesis_extractor::intent::{folded_sentences, whole};

const LANGUAGES: [&str; 2] = ["zh", "en"];
const FOLDS: usize = 5;

const EPOCHS: usize = 10;
const RATE: f32 = 0.03;
/// How strongly weights are drawn to 0 whenever they are used.
const DECAY: f32 = 1e-3;
/// Statements that an example is shown with.
const VARIANTS: usize = 6;
/// What only one example shows is its own matter, not the language's.
const EXAMPLES_PER_FEATURE_MIN: u16 = 2;
/// Missing a request loses what somebody wanted kept, a request too many keeps a sentence that was said:
/// the balance is moved by this much (natural logarithm of the odds) in favour of requests. Chosen
/// by `check`.
const LEANING: f32 = 0.6;
/// Against the number of requests: statements alone, and two statements in a row.
const STATEMENT_WEIGHT: f32 = 0.24;
const STATEMENTS_WEIGHT: f32 = 0.08;
/// Of a sentence without a statement: without its marks, and beside a statement.
const UNMARKED_WEIGHT: f32 = 0.1;
const JOINED_WEIGHT: f32 = 0.1;

struct Example {
    asks: bool,
    /// Folded; the statement in it, if it is a listed one, is a [`GAP`].
    text: String,
    statement: Option<String>,
    language: usize,
}

struct Shown {
    sentences: Vec<String>,
    asks: bool,
    weight: f32,
}

/// What is seen of a sentence or a text.
type Views = Vec<Vec<u32>>;

struct Linear {
    weights: Vec<f32>,
    bias: f32,
}

struct Heads {
    near: Linear,
    whole: Linear,
}

struct Data {
    examples: Vec<Example>,
    statements: [Vec<String>; 2],
    fingerprint: String,
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/intent");
    let data = Data::read(&folder);
    if std::env::args().nth(1).as_deref() == Some("check") {
        check(&data);
        return;
    }
    let heads = Heads::train(&data, |_| true);
    let largest = [&heads.near, &heads.whole]
        .iter()
        .flat_map(|linear| &linear.weights)
        .fold(0.0_f32, |most, w| most.max(w.abs()));
    let scale = 127.0 / largest;
    let bytes = |linear: &Linear| -> Vec<u8> {
        let byte = |w: &f32| ((w * scale).round() as i8).cast_unsigned();
        linear.weights.iter().map(byte).collect()
    };
    let bias = heads.near.bias + heads.whole.bias + LEANING;
    let about = About {
        examples: data.fingerprint,
        bias: (bias * scale).round() as i32,
    };
    let about = toml::to_string(&about).expect("plain data");
    std::fs::write(folder.join("near.bin"), bytes(&heads.near))
        .expect("the weights can be written");
    std::fs::write(folder.join("whole.bin"), bytes(&heads.whole))
        .expect("the weights can be written");
    std::fs::write(folder.join("head.toml"), about).expect("the bias can be written");
}

impl Data {
    fn read(folder: &Path) -> Self {
        let read =
            |name: PathBuf| std::fs::read_to_string(folder.join(name)).expect("an example file");
        let mut data = Self {
            examples: Vec::new(),
            statements: [Vec::new(), Vec::new()],
            fingerprint: String::new(),
        };
        let mut all = String::new();
        for (language, name) in LANGUAGES.iter().enumerate() {
            let statements = read(format!("statements.{name}.txt").into());
            let examples = read(format!("train.{name}.tsv").into());
            all.push_str(&statements);
            all.push_str(&examples);
            data.statements[language] = statements.lines().map(folded).collect();
            let mut listed = data.statements[language].clone();
            listed.sort_by_key(|statement| std::cmp::Reverse(statement.len()));
            for line in examples.lines() {
                let (label, text) = line.split_once('\t').expect("label, tab, text");
                let text = folded(text);
                let statement = listed
                    .iter()
                    .find(|statement| label == "1" && text.contains(*statement))
                    .cloned();
                data.examples.push(Example {
                    asks: label == "1",
                    text: match &statement {
                        Some(statement) => text.replace(statement, &GAP.to_string()),
                        None => text,
                    },
                    statement,
                    language,
                });
            }
        }
        data.fingerprint = format!("{:016x}", fingerprint(&all));
        data
    }
}

fn folded(text: &str) -> String {
    folded_sentences(text).join("")
}

fn whole_views(sentence: &str) -> Views {
    vec![whole::parts(sentence)]
}

fn of_all(sentences: &[String], see: fn(&str) -> Views) -> Views {
    sentences
        .iter()
        .flat_map(|sentence| see(sentence))
        .collect()
}

/// The same sequence each time.
struct Luck(u64);

impl Luck {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % most
    }

    fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let other = self.below(i + 1);
            items.swap(i, other);
        }
    }
}

/// As somebody dictates it.
fn unmarked(text: &str, language: usize) -> String {
    let is_mark = |c: char| ",.;:!?\"、。".contains(c);
    if language == 0 {
        text.replace(is_mark, "")
    } else {
        text.replace(is_mark, " ")
    }
}

/// What is shown of the examples and statements that `is_in` lets in.
fn show(data: &Data, is_in: impl Fn(usize) -> bool) -> Vec<Shown> {
    let mut luck = Luck(424_242);
    let mut shown = Vec::new();
    let mut add = |text: &str, asks: bool, weight: f32| {
        shown.push(Shown {
            sentences: folded_sentences(text),
            asks,
            weight,
        });
    };
    for (language, statements) in data.statements.iter().enumerate() {
        let known: Vec<&str> = (0..statements.len())
            .filter(|at| is_in(*at))
            .map(|at| statements[at].as_str())
            .collect();
        let separators = [[",", ",", "", " "], [", ", " ", ", ", " "]][language];
        let mut requests = 0.0;
        for (at, example) in data.examples.iter().enumerate() {
            if example.language != language || !is_in(at) {
                continue;
            }
            let text = &example.text;
            if example.statement.is_some() {
                requests += 1.0;
                for variant in 0..VARIANTS {
                    let text = text.replace(GAP, luck.of(&known));
                    let text = if variant % 3 == 2 {
                        unmarked(&text, language)
                    } else {
                        text
                    };
                    add(&text, example.asks, 1.0 / VARIANTS as f32);
                }
                continue;
            }
            add(text, example.asks, 1.0);
            add(&unmarked(text, language), example.asks, UNMARKED_WEIGHT);
            let joined = format!("{}{}{text}", luck.of(&known), luck.of(&separators));
            add(&joined, example.asks, JOINED_WEIGHT);
            let open = text.trim_end_matches(|c| ".!?。".contains(c));
            let joined = format!("{open}{}{}", luck.of(&separators), luck.of(&known));
            add(&joined, example.asks, JOINED_WEIGHT);
        }
        let share = requests / known.len() as f32;
        for statement in &known {
            add(statement, false, share * STATEMENT_WEIGHT);
            let two = format!("{statement}{}{}", separators[0], luck.of(&known));
            add(&two, false, share * STATEMENTS_WEIGHT);
        }
    }
    shown
}

/// Which features enough examples show, apart from the statements in them.
fn telling(
    data: &Data,
    is_in: impl Fn(usize) -> bool,
    see: fn(&str) -> Views,
    places: usize,
) -> Vec<bool> {
    let mut counts = vec![0_u16; places];
    let examples = data.examples.iter().enumerate();
    for (_, example) in examples.filter(|(at, _)| is_in(*at)) {
        let seen = of_all(&folded_sentences(&example.text), see);
        let mut places: Vec<u32> = seen.into_iter().flatten().collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            let count = &mut counts[place as usize];
            *count = count.saturating_add(1);
        }
    }
    counts
        .iter()
        .map(|count| *count >= EXAMPLES_PER_FEATURE_MIN)
        .collect()
}

impl Heads {
    fn train(data: &Data, is_in: impl Fn(usize) -> bool + Copy) -> Self {
        let shown = show(data, is_in);
        let learn = |see: fn(&str) -> Views, places: usize| {
            let telling = telling(data, is_in, see, places);
            let mut seen: Vec<(Views, &Shown)> = shown
                .iter()
                .map(|one| (of_all(&one.sentences, see), one))
                .collect();
            for view in seen.iter_mut().flat_map(|(views, _)| views) {
                view.retain(|place| telling[*place as usize]);
            }
            Linear::train(seen, places)
        };
        Self {
            near: learn(views, Head::NEAR_PLACES),
            whole: learn(whole_views, Head::WHOLE_PLACES),
        }
    }

    /// As [`Head::score`], of the sentence for which most speaks.
    fn score(&self, text: &str) -> f32 {
        let score = |sentence: &String| {
            let near = self.near.best(&views(sentence)).0 + self.near.bias;
            let whole = self.whole.best(&whole_views(sentence)).0 + self.whole.bias;
            near + whole
        };
        let sentences = folded_sentences(text);
        sentences.iter().map(score).fold(f32::MIN, f32::max) + LEANING
    }
}

impl Linear {
    /// Logistic regression by stochastic gradient descent, with a rate of its own for each weight, on the
    /// view that speaks most for a request.
    fn train(mut shown: Vec<(Views, &Shown)>, places: usize) -> Self {
        let mut linear = Self {
            weights: vec![0.0_f32; places],
            bias: 0.0,
        };
        let mut squares = vec![1e-6_f32; places];
        let mut bias_square = 1e-6_f32;
        let mut luck = Luck(88_172_645_463_325_252);
        for _ in 0..EPOCHS {
            luck.shuffle(&mut shown);
            for (views, one) in &shown {
                let (sum, best) = linear.best(views);
                let likely = 1.0 / (1.0 + (-(sum + linear.bias)).exp());
                let error = (likely - f32::from(u8::from(one.asks))) * one.weight;
                // A text without a sentence has no view.
                let Some(view) = views.get(best) else {
                    continue;
                };
                for place in view {
                    let at = *place as usize;
                    let slope = error + DECAY * linear.weights[at];
                    squares[at] += slope * slope;
                    linear.weights[at] -= RATE * slope / squares[at].sqrt();
                }
                bias_square += error * error;
                linear.bias -= RATE * error / bias_square.sqrt();
            }
        }
        linear
    }

    /// The highest sum, and of which view it is.
    fn best(&self, views: &Views) -> (f32, usize) {
        let mut best = (f32::MIN, 0);
        for (at, view) in views.iter().enumerate() {
            let sum = view.iter().map(|place| self.weights[*place as usize]).sum();
            if sum > best.0 {
                best = (sum, at);
            }
        }
        best
    }
}

fn check(data: &Data) {
    let mut counts = [[0_usize; 4]; 2];
    let mut order: Vec<usize> = (0..data.examples.len()).collect();
    Luck(1_234_567).shuffle(&mut order);
    let mut fold_of = vec![0; order.len()];
    for (place, at) in order.iter().enumerate() {
        fold_of[*at] = place % FOLDS;
    }
    for fold in 0..FOLDS {
        let heads = Heads::train(data, |at| fold_of[at] != fold);
        let mut luck = Luck(7);
        for (at, example) in data.examples.iter().enumerate() {
            if fold_of[at] != fold {
                continue;
            }
            let statements = &data.statements[example.language];
            let unseen: Vec<&str> = (0..statements.len())
                .filter(|at| fold_of[*at] == fold)
                .map(|at| statements[at].as_str())
                .collect();
            let text = example.text.replace(GAP, luck.of(&unseen));
            let judged = heads.score(&text) > 0.0;
            counts[example.language][usize::from(judged) * 2 + usize::from(example.asks)] += 1;
            if judged != example.asks {
                println!("{} {text}", u8::from(example.asks));
            }
        }
    }
    for (name, [_, missed, wrong, right]) in LANGUAGES.iter().zip(counts) {
        println!(
            "{name}: precision {:.3}, recall {:.3}",
            right as f32 / (right + wrong) as f32,
            right as f32 / (right + missed) as f32
        );
    }
}
