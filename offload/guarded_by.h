// Says which mutex protects a member; for readers (libstdc++'s mutex is unknown to clang's check).
#pragma once

#define GUARDED_BY(mutex)
