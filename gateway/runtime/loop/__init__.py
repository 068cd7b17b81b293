"""The one loop and its parts: frames in, records out, feedback back.

The pipeline owns all ordering. Its parts receive, queue, gather and report; none of them waits
for a server except where the pipeline says so.
"""
