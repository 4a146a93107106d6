// For programs written to Gibraltar's interface: its six calls, and gib_context, are in recoded.h.

#ifndef RECODED_GIBRALTAR_H
#define RECODED_GIBRALTAR_H

#include "recoded.h"

#endif // RECODED_GIBRALTAR_H
