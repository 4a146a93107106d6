//! The program as a user runs it. Random tests print their seed; `RECODED_SEED` repeats one.

mod arguments;
mod damage;
mod folders;
mod hostile;
mod round_trips;
mod support;
mod updates;
