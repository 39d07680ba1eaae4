//! How is a model asked so that it costs no more than was allowed, and an outage no more than patience?
//!
//! Around the port, in this order: the circuit (a model that is down is not asked), the owner's budget
//! of the hour, a place among those who ask at once, and then tries with pauses between them where trying
//! again can help. Whatever ends it, the rules speak and the record says why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{EventTag, Hash, OwnerKey};
use anamnesis_domain::input::{ModelUse, Turn};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::chat::{Chat, ChatAnswer, ChatError, ChatRequest};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::context::Context;
use crate::metrics;
use crate::prompt::{Prompt, TooLong};
use crate::reply::{ANSWER_CODES, Reply};

/// What is spent on a model at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Owners whose turns are asked about at the same time, over all partitions of this process.
    pub concurrency: usize,
    /// Tries of one question.
    pub tries_max: u32,
    /// The pause after the first failure; doubled after each, and drawn between half of it and all.
    pub pause: Duration,
    /// For all questions of one turn, with every pause. A server that wants to be left alone for longer
    /// is not asked again.
    pub patience: Duration,
    /// Calls for one owner in an hour; `None` for any number.
    pub calls_per_hour: Option<u32>,
    /// Tokens, of questions and answers, for one owner in an hour.
    pub tokens_per_hour: Option<u32>,
    /// Turns in a row that fail by an outage after which the model is not asked any more.
    pub outages_max: u32,
    /// How long it is then left alone before one turn tries again.
    pub rest: Duration,
    pub answer_tokens_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 8,
            tries_max: 4,
            pause: Duration::from_millis(500),
            patience: Duration::from_secs(90),
            calls_per_hour: Some(600),
            tokens_per_hour: None,
            outages_max: 5,
            rest: Duration::from_secs(30),
            answer_tokens_max: 2_048,
        }
    }
}

/// The outcome of a call that was answered.
pub const ANSWERED: &str = "answered";
/// The owner has used up what an hour allows.
const NO_BUDGET: &str = "no_budget";
/// The model was down a moment ago, and is left alone.
const CIRCUIT_OPEN: &str = "circuit_open";
/// The turn is longer than what a model is asked about.
const TURN_TOO_LONG: &str = "turn_too_long";

/// A server that asks for a day's rest is asked again sooner.
const QUIET_MAX: Duration = Duration::from_secs(3_600);

/// Every code of a fallback that is no [`ChatError`] and no fault of an answer.
const OWN_CODES: [&str; 3] = [NO_BUDGET, CIRCUIT_OPEN, TURN_TOO_LONG];

/// Every code that a fallback may have.
pub fn fallback_codes() -> Vec<&'static str> {
    let mut codes = ChatError::CODES.to_vec();
    codes.extend(ANSWER_CODES);
    codes.extend(OWN_CODES);
    codes
}

/// A model with the ways of asking it.
pub struct Asker {
    chat: Chat,
    prompt: &'static Prompt,
    settings: Settings,
    places: Semaphore,
    budget: Mutex<Budget>,
    circuit: Mutex<Circuit>,
    /// Until when the server wants to be left alone, by everybody.
    quiet_until: Mutex<Option<Instant>>,
}

impl Asker {
    pub fn new(chat: Chat, prompt: &'static Prompt, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            places: Semaphore::new(settings.concurrency.max(1)),
            budget: Mutex::default(),
            circuit: Mutex::default(),
            quiet_until: Mutex::default(),
            chat,
            prompt,
            settings,
        })
    }

    /// How many turns may be asked about at the same time.
    pub fn concurrency(&self) -> usize {
        self.settings.concurrency.max(1)
    }

    /// Whether what an owner spends in an hour is bounded.
    pub(crate) fn has_budget(&self) -> bool {
        self.settings.calls_per_hour.is_some() || self.settings.tokens_per_hour.is_some()
    }

    /// Takes note of what is recorded that an owner has spent in the hour of `now`. What is counted here
    /// already is not counted again.
    pub(crate) fn recall(&self, owner: OwnerKey, now: Timestamp, recorded: Spent) {
        lock(&self.budget).recall(owner, now, recorded);
    }

    /// Asks about one turn; `None` when nothing in it is to be asked about. `now` tells the hour of the
    /// owner's budget.
    pub async fn ask(
        &self,
        owner: OwnerKey,
        turn: &Turn,
        context: &Context,
        now: Timestamp,
    ) -> Option<Reply> {
        let questions = self
            .prompt
            .questions(turn, context, self.settings.answer_tokens_max);
        let reply = match questions {
            Ok(questions) if questions.is_empty() => return None,
            Ok(questions) => self.ask_all(owner, turn.event, &questions, now).await,
            Err(TooLong) => self.reply(Asked::default(), Some(TURN_TOO_LONG)),
        };
        metrics::replied(&reply);
        Some(reply)
    }

    async fn ask_all(
        &self,
        owner: OwnerKey,
        event: EventTag,
        questions: &[ChatRequest],
        now: Timestamp,
    ) -> Reply {
        let mut asked = Asked::default();
        if !lock(&self.circuit).lets_through() {
            return self.reply(asked, Some(CIRCUIT_OPEN));
        }
        // Whoever waits here holds the stage back: nothing more is read than can be asked about.
        let place = self.places.acquire().await;
        let deadline = Instant::now() + self.settings.patience;
        let mut fallback = None;
        for request in questions {
            let mut tries = Tries {
                owner,
                event,
                now,
                deadline,
                asked: &mut asked,
            };
            let code = match self.try_until(request, &mut tries).await {
                Ok(answer) => {
                    asked.model = Some(answer.model);
                    asked.answers.push(Some(answer.content));
                    continue;
                }
                Err(code) => code,
            };
            asked.answers.push(None);
            fallback.get_or_insert(code);
        }
        drop(place);
        self.reply(asked, fallback)
    }

    fn reply(&self, asked: Asked, fallback: Option<&'static str>) -> Reply {
        let taken = ModelUse {
            calls: asked.calls,
            prompt_tokens: asked.prompt_tokens,
            completion_tokens: asked.completion_tokens,
            fallback: fallback.map(str::to_owned),
        };
        let model = asked.model.unwrap_or_else(|| self.chat.model().to_owned());
        let version = self.prompt.version.to_owned();
        Reply::new(model, version, asked.answers, taken)
    }

    /// Tries until there is an answer, or trying again cannot help, or is not allowed any more.
    async fn try_until(
        &self,
        request: &ChatRequest,
        tries: &mut Tries<'_>,
    ) -> Result<ChatAnswer, &'static str> {
        let mut number = 0;
        loop {
            number += 1;
            let quiet_until = *lock(&self.quiet_until);
            if let Some(until) = quiet_until.filter(|until| *until > Instant::now()) {
                if until >= tries.deadline {
                    return Err(ChatError::Busy { retry_after: None }.code());
                }
                sleep_until(until).await;
            }
            if Instant::now() >= tries.deadline {
                return Err(ChatError::Timeout.code());
            }
            if !lock(&self.budget).allows(tries.owner, tries.now, &self.settings) {
                return Err(NO_BUDGET);
            }
            let error = match self.try_once(request, tries).await {
                Ok(answer) => {
                    lock(&self.circuit).answered();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let pause = self.pause(number, tries.event, &error);
            let is_over = !error.is_retryable()
                || number >= self.settings.tries_max
                || Instant::now() + pause >= tries.deadline;
            if error.retry_after().is_some() {
                let until = Instant::now() + pause.min(QUIET_MAX);
                let mut quiet_until = lock(&self.quiet_until);
                *quiet_until = (*quiet_until).max(Some(until));
            }
            if is_over {
                if error.is_outage() {
                    lock(&self.circuit).failed(&self.settings);
                } else {
                    // It answers, if only with a refusal.
                    lock(&self.circuit).answered();
                }
                tracing::warn!(model = self.chat.model(), %error, tries = number, "a model gave no answer");
                return Err(error.code());
            }
            sleep_until(Instant::now() + pause).await;
        }
    }

    async fn try_once(
        &self,
        request: &ChatRequest,
        tries: &mut Tries<'_>,
    ) -> Result<ChatAnswer, ChatError> {
        tries.asked.calls = tries.asked.calls.saturating_add(1);
        let since = Instant::now();
        let answer = timeout_at(tries.deadline, self.chat.complete(request)).await;
        let answer = answer.unwrap_or(Err(ChatError::Timeout));
        metrics::called(&answer, since.elapsed());
        let tokens = answer
            .as_ref()
            .map_or(0, |a| a.prompt_tokens.saturating_add(a.completion_tokens));
        lock(&self.budget).spend(tries.owner, tries.now, tokens);
        if let Ok(answer) = &answer {
            let asked = &mut tries.asked;
            asked.prompt_tokens = asked.prompt_tokens.saturating_add(answer.prompt_tokens);
            asked.completion_tokens = asked
                .completion_tokens
                .saturating_add(answer.completion_tokens);
        }
        answer
    }

    /// Doubled with each try, and at least as long as the server asks for. Half of it depends on the event, so that
    /// those who failed together do not come back together.
    fn pause(&self, number: u32, event: EventTag, error: &ChatError) -> Duration {
        let whole = self.settings.pause * 2_u32.saturating_pow(number - 1);
        let mut seed = event.bytes().to_vec();
        seed.extend(number.to_le_bytes());
        let share = f64::from(Hash::of(&seed).0[0]) / 255.0;
        let pause = whole.mul_f64(0.5 + share / 2.0);
        error
            .retry_after()
            .map_or(pause, |wanted| wanted.max(pause))
    }
}

/// One turn's tries.
struct Tries<'a> {
    owner: OwnerKey,
    event: EventTag,
    now: Timestamp,
    deadline: Instant,
    asked: &'a mut Asked,
}

#[derive(Default)]
struct Asked {
    answers: Vec<Option<Text>>,
    model: Option<String>,
    calls: u32,
    prompt_tokens: u32,
    completion_tokens: u32,
}

/// Nothing is left half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const HOUR_MILLIS: i64 = 3_600_000;

/// When the hour of a time began.
pub(crate) fn hour_began(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(HOUR_MILLIS) * HOUR_MILLIS)
}

/// What owners have used up in the current hour. No more than the owners of one hour are remembered; after
/// a start what is recorded tells it.
#[derive(Default)]
struct Budget {
    hour: i64,
    spent: HashMap<OwnerKey, Spent>,
}

/// What was spent on an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spent {
    calls: u32,
    tokens: u32,
}

impl Spent {
    pub(crate) fn add(&mut self, used: &ModelUse) {
        let tokens = used.prompt_tokens.saturating_add(used.completion_tokens);
        self.calls = self.calls.saturating_add(used.calls);
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

impl Budget {
    fn begin(&mut self, now: Timestamp) {
        let hour = now.millis().div_euclid(HOUR_MILLIS);
        // A clock that goes back gives nobody a second budget.
        if hour > self.hour {
            self.hour = hour;
            self.spent.clear();
        }
    }

    fn allows(&mut self, owner: OwnerKey, now: Timestamp, settings: &Settings) -> bool {
        self.begin(now);
        let Some(spent) = self.spent.get(&owner) else {
            return settings.calls_per_hour != Some(0) && settings.tokens_per_hour != Some(0);
        };
        settings.calls_per_hour.is_none_or(|max| spent.calls < max)
            && settings
                .tokens_per_hour
                .is_none_or(|max| spent.tokens < max)
    }

    fn recall(&mut self, owner: OwnerKey, now: Timestamp, recorded: Spent) {
        self.begin(now);
        let spent = self.spent.entry(owner).or_default();
        spent.calls = spent.calls.max(recorded.calls);
        spent.tokens = spent.tokens.max(recorded.tokens);
    }

    fn spend(&mut self, owner: OwnerKey, now: Timestamp, tokens: u32) {
        self.begin(now);
        let spent = self.spent.entry(owner).or_default();
        spent.calls = spent.calls.saturating_add(1);
        spent.tokens = spent.tokens.saturating_add(tokens);
    }
}

/// Closed while the model answers. Open after so many outages in a row; then one turn at a time tries.
#[derive(Default)]
struct Circuit {
    outages: u32,
    open_until: Option<Instant>,
}

impl Circuit {
    /// Whether a turn may be asked about now. The one that is let through first moves the time on for the
    /// others.
    fn lets_through(&mut self) -> bool {
        match self.open_until {
            None => true,
            Some(until) if Instant::now() < until => false,
            Some(until) => {
                self.open_until = Some(until.max(Instant::now()) + PROBE_PATIENCE);
                true
            }
        }
    }

    fn answered(&mut self) {
        if self.open_until.is_some() {
            tracing::info!("the model that was left alone answers again");
        }
        *self = Self::default();
    }

    fn failed(&mut self, settings: &Settings) {
        self.outages = self.outages.saturating_add(1);
        if self.outages >= settings.outages_max {
            if self.outages == settings.outages_max {
                tracing::warn!(
                    outages = self.outages,
                    "the model is left alone for a while"
                );
            }
            self.open_until = Some(Instant::now() + settings.rest);
        }
    }
}

/// While one turn probes, the others go on without the model.
const PROBE_PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
