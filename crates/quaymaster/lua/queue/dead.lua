-- queue.dead: a page of the dead letters, the oldest first.
--
-- KEYS  1 dead    list  dead letters
-- ARGV  1 offset  int>=0
--       2 count   int>0 at most 1000
--       3 budget  int>0 bytes after which the page ends
-- OUT   "letters"  length  letters:bytes..
-- COST  O(count), and the way to the offset

--@include queue/page

local reply = { "letters", redis.call("LLEN", KEYS[1]) }
queue_page(KEYS[1], ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, reply)
return reply
