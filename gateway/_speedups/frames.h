/* Frames of the stream: CopyData with an XLogData message ('w'), and in it one of pgoutput's. */
#ifndef PGSLUICE_FRAMES_H
#define PGSLUICE_FRAMES_H

/* Where pgoutput's message begins with its letter, and the sizes of frames with a Begin and a Commit. */
enum { TAG_AT = 25, BEGIN_SIZE = 46, COMMIT_SIZE = 51 };

#endif
