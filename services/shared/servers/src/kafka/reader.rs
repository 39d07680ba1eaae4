//! How are records read from exactly an offset? Few clients, each with many partitions, and in each
//! client one cursor per partition. Going on where the last read stopped costs no question to the
//! broker: the records are in the queue already. Two kinds of clients:
//!
//! - **streams** fetch ahead, and wait at the tail until something comes (a long poll that all
//!   partitions of a client share);
//! - **picks** fetch little and only where they are sent, for single records far apart.
//!
//! Nothing here asks for the latest or the earliest: `auto.offset.reset=error`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::log::LogError;
use rdkafka::ClientConfig;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;
use tokio::sync::SemaphorePermit;

use super::append_time::Run;
use super::client::{Asker, Context};
use super::config::KafkaConfig;
use super::cursor::{Cursor, Cursors, Taken, Way};
use super::place::Place;
use super::record::Foreign;
use super::writer::drop_apart;

/// Readers that stand in one partition at different places: the stages of a process, and one that
/// replays. More of them take turns.
const STREAMS: usize = 4;
const PICKS: usize = 4;

/// From so many records on, they are picked by several clients at once.
const PICK_TOGETHER: usize = 16;

/// A record that lies at most so far behind the last one is reached by reading on.
const SCAN_MAX: u64 = 64;

/// A queue is looked into this often even if nothing says that something came.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After this long at an end that is none, the place is read anew to see whether a record is missing.
const GAP_AFTER: Duration = Duration::from_millis(1_500);

/// A read that got nothing, although the broker has it, gives its cursor up; after so many in a row the
/// client goes as well.
const STALLS_MAX: u32 = 2;

/// Events of clients are taken this often. Records do not come this way.
const EVENTS_EVERY: Duration = Duration::from_millis(100);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// A pick whose queue is full looks every millisecond whether it is empty again, and so wakes a
/// processor: what nobody uses is let go of.
const PICK_UNUSED_MAX: Duration = Duration::from_secs(1);

/// Why there is no record at a place.
pub(super) enum Failure {
    Kafka(KafkaError),
    Log(LogError),
    /// There are records behind it, and none here. With the next one's offset, where it is known.
    Gap(Option<u64>),
    /// It was not sent in time, by the client of this number.
    Late(Option<usize>),
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Self {
        Self::Kafka(error)
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// A record with its append time.
pub(super) type Timed = (Foreign, Timestamp);

struct Clients {
    settings: ClientConfig,
    lanes: Mutex<Vec<Lane>>,
    rebuilt: AtomicU64,
}

struct Lane {
    client: Arc<BaseConsumer<Context>>,
    /// Reads in a row that did not get a record that is there.
    stalls: u32,
}

impl Clients {
    fn get(&self, lane: usize) -> Result<Arc<BaseConsumer<Context>>, KafkaError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        while lanes.len() <= lane {
            lanes.push(self.make()?);
        }
        Ok(lanes[lane].client.clone())
    }

    fn make(&self) -> Result<Lane, KafkaError> {
        let client = self.settings.create_with_context(Context::default())?;
        Ok(Lane {
            client: Arc::new(client),
            stalls: 0,
        })
    }

    fn all(&self) -> Vec<Arc<BaseConsumer<Context>>> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().map(|lane| lane.client.clone()).collect()
    }

    fn works(&self, lane: usize) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(lane) {
            lane.stalls = 0;
        }
    }

    /// A client that sends nothing although there is something is made anew. Cursors that it still has
    /// go on with it until they stall as well.
    fn stalls(&self, number: usize) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = lanes.get_mut(number) else {
            return;
        };
        lane.stalls += 1;
        if lane.stalls < STALLS_MAX {
            return;
        }
        if let Ok(made) = self.make() {
            tracing::warn!(lane = number, "a reading client stalled and is made anew");
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
            drop_apart(std::mem::replace(lane, made));
        }
    }
}

/// A kind of clients, and the cursors of every partition in them.
struct Kind {
    clients: Arc<Clients>,
    cursors: Vec<Cursors>,
}

pub(super) struct Readers {
    asker: Arc<Asker>,
    places: Vec<Arc<Place>>,
    streams: Kind,
    picks: Kind,
    timeout: Duration,
}

/// A cursor that is in use; goes back on drop, also when a read is given up in the middle.
struct Lease<'a> {
    cursors: &'a Cursors,
    cursor: Option<Cursor>,
    /// Whether it was just put at its place, so that its queue holds nothing of before.
    is_anew: bool,
    _permit: SemaphorePermit<'a>,
}

impl Lease<'_> {
    fn cursor(&mut self) -> Result<&mut Cursor, Failure> {
        self.cursor.as_mut().ok_or(Failure::Late(None))
    }

    /// Ends the cursor: the next read stands anew. Gives the lane that it was in.
    fn give_up(&mut self) -> Option<usize> {
        let cursor = self.cursor.take()?;
        let lane = cursor.lane();
        drop_apart(cursor);
        Some(lane)
    }

    async fn seek(&mut self, from: u64) -> Result<(), Failure> {
        let cursor = self.cursor.take().ok_or(Failure::Late(None))?;
        self.cursor = Some(apart(move || cursor.seek(from)).await?);
        self.is_anew = true;
        Ok(())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.cursors.put(cursor);
        }
    }
}

/// On a thread that may wait.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Failure::Log(LogError::Unavailable {
            reason: broke_off(&error).to_owned(),
        })),
    }
}

impl Readers {
    pub(super) fn new(
        config: &KafkaConfig,
        asker: Arc<Asker>,
        places: Vec<Arc<Place>>,
    ) -> Result<Arc<Self>, LogError> {
        let kind = |settings, lanes| Kind {
            clients: Arc::new(Clients {
                settings,
                lanes: Mutex::default(),
                rebuilt: AtomicU64::new(0),
            }),
            cursors: places.iter().map(|_| Cursors::new(lanes)).collect(),
        };
        let readers = Arc::new(Self {
            streams: kind(stream_settings(config)?, STREAMS),
            picks: kind(pick_settings(config)?, PICKS),
            timeout: config.read_timeout,
            asker,
            places,
        });
        let weak = Arc::downgrade(&readers);
        std::thread::Builder::new()
            .name("kafka-events".to_owned())
            .spawn(move || take_events(&weak))
            .map_err(|error| LogError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(readers)
    }

    async fn lease<'a>(
        &'a self,
        kind: &'a Kind,
        index: usize,
        from: u64,
    ) -> Result<Lease<'a>, Failure> {
        let cursors = &kind.cursors[index];
        let permit = cursors
            .permits
            .acquire()
            .await
            .map_err(|_| Failure::Late(None))?;
        let way = cursors.find(from).ok_or(Failure::Late(None))?;
        let is_anew = !matches!(way, Way::There(_));
        let (lane, cursor) = match way {
            Way::There(cursor) => (cursor.lane(), Ok(cursor)),
            Way::Move(cursor) => (cursor.lane(), apart(move || cursor.seek(from)).await),
            Way::Make(reserved) => {
                let (clients, place) = (kind.clients.clone(), self.places[index].clone());
                let (lane, timeout) = (reserved.lane(), self.timeout);
                let made = apart(move || {
                    let client = clients.get(lane)?;
                    Cursor::make(client, reserved, &place, from, timeout)
                });
                (lane, made.await)
            }
        };
        // A client that never finds a broker again that came back.
        let cursor = cursor.inspect_err(|_| kind.clients.stalls(lane))?;
        Ok(Lease {
            cursors,
            cursor: Some(cursor),
            is_anew,
            _permit: permit,
        })
    }

    /// Records from `from` on, where one is known to be.
    pub(super) async fn read(
        &self,
        index: usize,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Timed>, Failure> {
        let place = &self.places[index];
        let deadline = Instant::now() + self.timeout;
        let mut lease = self.lease(&self.streams, index, from).await?;
        let first = match self.record(place, &mut lease, deadline).await {
            Ok(first) => first,
            Err(Failure::Late(_)) => {
                return Err(Failure::Late(lease.give_up()));
            }
            Err(Failure::Gap(Some(ahead))) => {
                // Whoever may pass over the hole goes on there.
                lease.cursor()?.pass_over(ahead);
                return Err(Failure::Gap(Some(ahead)));
            }
            Err(failure) => return Err(failure),
        };
        let cursor = lease.cursor()?;
        self.streams.clients.works(cursor.lane());
        // Both stand for the place before `from` until the read is done: given up in the middle, the
        // cursor has moved and knows nothing.
        let before = cursor.before.take();
        let mut run = std::mem::replace(&mut cursor.run, Run::starting_at(cursor.next));
        let mut bytes = first.bytes();
        let mut records = vec![first];
        cursor.pass();
        while records.len() < records_max.max(1) {
            match cursor.take(place) {
                Taken::Record(record) => {
                    bytes += record.bytes();
                    if bytes > bytes_max {
                        cursor.hold(record);
                        break;
                    }
                    records.push(record);
                    cursor.pass();
                }
                Taken::Failed(error) => {
                    cursor.fail_later(error);
                    break;
                }
                // A short read; a hole is looked into when it is asked for.
                Taken::Nothing | Taken::End | Taken::Ahead(_) => break,
            }
        }
        let timed = self.timed(place, before, records, &mut run).await?;
        let cursor = lease.cursor()?;
        cursor.before = timed.last().map(|(_, at)| *at);
        place.times.offer(&run);
        cursor.run = run;
        place.reaches(cursor.next);
        Ok(timed)
    }

    async fn timed(
        &self,
        place: &Place,
        before: Option<Timestamp>,
        records: Vec<Foreign>,
        run: &mut Run,
    ) -> Result<Vec<Timed>, Failure> {
        let mut timed = Vec::with_capacity(records.len());
        let mut before = before;
        for record in records {
            let at = match before {
                Some(before) => record.own_time.max(before),
                None => self.time_of(place, &record).await?,
            };
            run.push(record.own_time, at);
            before = Some(at);
            timed.push((record, at));
        }
        Ok(timed)
    }

    async fn time_of(&self, place: &Place, record: &Foreign) -> Result<Timestamp, Failure> {
        let (name, partition) = (&place.name, place.partition);
        let at = place
            .times
            .of(&self.asker, name, partition, record.offset, record.own_time);
        Ok(at.await?)
    }

    /// A client did not send a record that the broker has.
    pub(super) fn stalled(&self, lane: usize) {
        self.streams.clients.stalls(lane);
    }

    /// How many clients were made anew because they stalled.
    pub(super) fn rebuilt(&self) -> u64 {
        self.streams.clients.rebuilt.load(Ordering::Relaxed)
    }

    /// As [`Readers::pick`], in several parts at once when there are many.
    pub(super) async fn pick_all(
        &self,
        index: usize,
        offsets: &[u64],
    ) -> Result<Vec<Timed>, (u64, Failure)> {
        if offsets.len() < PICK_TOGETHER {
            return self.pick(index, offsets).await;
        }
        let parts = offsets.chunks(offsets.len().div_ceil(PICKS));
        let picked = parts.map(|part| self.pick(index, part));
        let picked = futures::future::try_join_all(picked).await?;
        Ok(picked.into_iter().flatten().collect())
    }

    /// The records at these ascending offsets, each of which is known to be there.
    pub(super) async fn pick(
        &self,
        index: usize,
        offsets: &[u64],
    ) -> Result<Vec<Timed>, (u64, Failure)> {
        let place = &self.places[index];
        let mut picked: Vec<Timed> = Vec::with_capacity(offsets.len());
        let Some(&first) = offsets.first() else {
            return Ok(picked);
        };
        let mut lease = self
            .lease(&self.picks, index, first)
            .await
            .map_err(|failure| (first, failure))?;
        for &offset in offsets {
            let last = picked.last().map(|(record, at)| (record.offset, *at));
            match self.pick_one(place, &mut lease, offset, last).await {
                Ok(one) => picked.push(one),
                Err(failure) => {
                    if let (Failure::Late(_), Some(lane)) = (&failure, lease.give_up()) {
                        self.picks.clients.stalls(lane);
                    }
                    return Err((offset, failure));
                }
            }
        }
        if let Some(cursor) = &lease.cursor {
            self.picks.clients.works(cursor.lane());
        }
        Ok(picked)
    }

    /// The record at offset 0 as it stands, to see whose log this is.
    pub(super) async fn first(&self, index: usize) -> Result<Foreign, Failure> {
        let mut lease = self.lease(&self.picks, index, 0).await?;
        let deadline = Instant::now() + self.timeout;
        if !lease.is_anew {
            // It may have fetched before the topic was made anew.
            lease.seek(0).await?;
        }
        let record = self.record(&self.places[index], &mut lease, deadline).await;
        lease.cursor()?.pass();
        record
    }

    async fn pick_one(
        &self,
        place: &Place,
        lease: &mut Lease<'_>,
        offset: u64,
        last: Option<(u64, Timestamp)>,
    ) -> Result<Timed, Failure> {
        let deadline = Instant::now() + self.timeout;
        let next = lease.cursor()?.next;
        if offset < next || offset - next > SCAN_MAX {
            lease.seek(offset).await?;
        }
        loop {
            let record = self.record(place, lease, deadline).await?;
            lease.cursor()?.pass();
            if record.offset < offset {
                continue;
            }
            let at = match last {
                Some((before, at)) if before + 1 == offset => record.own_time.max(at),
                Some(_) | None => self.time_of(place, &record).await?,
            };
            return Ok((record, at));
        }
    }

    /// Waits for the record at the cursor's place.
    async fn record(
        &self,
        place: &Place,
        lease: &mut Lease<'_>,
        deadline: Instant,
    ) -> Result<Foreign, Failure> {
        let began = Instant::now();
        let mut arrivals = place.arrivals.subscribe();
        // Set when the place was read anew, so that what the queue says is not of before.
        let mut is_anew = false;
        loop {
            arrivals.borrow_and_update();
            let cursor = lease.cursor()?;
            let (ahead, is_end) = match cursor.take(place) {
                Taken::Record(record) => return Ok(record),
                Taken::Failed(error) => return Err(error.into()),
                Taken::Ahead(offset) => (Some(offset), false),
                Taken::End => (None, true),
                Taken::Nothing => (None, false),
            };
            // A queue that gave the record before this place gives what follows it.
            let is_believed = is_anew || cursor.goes_on();
            if is_believed && ahead.is_some() || is_anew && is_end {
                return Err(Failure::Gap(ahead));
            }
            if ahead.is_some() || (!is_anew && began.elapsed() > GAP_AFTER) {
                let from = lease.cursor()?.next;
                lease.seek(from).await?;
                is_anew = true;
                continue;
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(Failure::Late(None));
            }
            let wait = LOOK_EVERY.min(deadline - now);
            // Late or not, the queue is looked into again.
            let _ = tokio::time::timeout(wait, arrivals.changed()).await;
        }
    }

    /// Sees to it that somebody waits at the end of a partition.
    pub(super) async fn tail(&self, index: usize, end: u64) -> Result<(), Failure> {
        if !self.is_waiting_at(index, end) {
            drop(self.lease(&self.streams, index, end).await?);
        }
        Ok(())
    }

    pub(super) fn is_waiting_at(&self, index: usize, end: u64) -> bool {
        self.streams.cursors[index].is_waiting_at(end)
    }

    /// As [`Cursors::peek`].
    pub(super) fn peek(&self, index: usize) -> bool {
        self.streams.cursors[index].peek(&self.places[index])
    }

    fn take_all_events(&self) {
        for kind in [&self.streams, &self.picks] {
            for client in kind.clients.all() {
                events_of(&client);
            }
        }
        self.asker.take_events();
    }

    fn sweep(&self) {
        for (kind, unused) in [(&self.streams, UNUSED_MAX), (&self.picks, PICK_UNUSED_MAX)] {
            for cursors in &kind.cursors {
                cursors.sweep(unused);
            }
        }
    }
}

fn events_of(client: &BaseConsumer<Context>) {
    while let Some(event) = client.poll(Duration::ZERO) {
        match event {
            Err(error) => tracing::debug!(%error, "an event of a Kafka client"),
            // Every partition has a queue of its own.
            Ok(_) => tracing::debug!("a record outside of its queue is dropped; it is read again"),
        }
    }
}

fn take_events(readers: &Weak<Readers>) {
    let mut swept = Instant::now();
    while let Some(readers) = readers.upgrade() {
        readers.take_all_events();
        if swept.elapsed() > SWEEP_EVERY {
            readers.sweep();
            swept = Instant::now();
        }
        drop(readers);
        std::thread::sleep(EVENTS_EVERY);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for kind in [&mut self.streams, &mut self.picks] {
            drop_apart((std::mem::take(&mut kind.cursors), kind.clients.all()));
        }
    }
}

fn settings(config: &KafkaConfig) -> Result<ClientConfig, LogError> {
    let mut settings = config.base()?;
    settings
        // An assignment needs a group's name; nothing joins it and nothing is committed to it.
        .set("group.id", format!("{}readers", config.topic_prefix))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // An unknown position stops; it never becomes the latest or the earliest.
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("check.crcs", "true")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("fetch.error.backoff.ms", "100");
    Ok(settings)
}

fn stream_settings(config: &KafkaConfig) -> Result<ClientConfig, LogError> {
    let mut settings = settings(config)?;
    settings
        // A client asks its broker one thing at a time: a partition that is added while the others
        // wait at their tails waits at most this long.
        .set("fetch.wait.max.ms", "100")
        .set("queued.min.messages", "4000")
        .set("queued.max.messages.kbytes", "4096")
        .set("fetch.queue.backoff.ms", "5");
    Ok(settings)
}

fn pick_settings(config: &KafkaConfig) -> Result<ClientConfig, LogError> {
    let mut settings = settings(config)?;
    settings
        .set("fetch.wait.max.ms", "1")
        .set("fetch.message.max.bytes", "32768")
        .set("queued.min.messages", "1")
        .set("fetch.queue.backoff.ms", "1");
    Ok(settings)
}
