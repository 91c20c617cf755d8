"""The items of a request, from a JSON body, a URL or shared memory."""
